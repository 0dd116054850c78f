// The copies of a plan: operands, and y, on rows that TMA reads and writes.
#pragma once

#include <exception>
#include <optional>

#include "cutlass_fused/common/copy_rows.hpp"
#include "cutlass_fused/plan/make_plan.hpp"
#include "launch/allocate.hpp"

namespace cutlass_fused {

class AlignedRows {
 public:
  // `problem`: of the matrices as they are given.
  AlignedRows(GemmArgs const& given, Copies const& copies, Problem const& problem)
      : given_(given), planned_(given), copies_(copies), type_(problem.operand_type()) {
    Problem const copied = with_copies(problem, copies);
    planned_.ldx = copied.x.ld;
    planned_.ldw = copied.weight.ld;
    planned_.ldy = copied.y.ld;
  }

  GemmArgs const& gemm() const { return planned_; }

  // Takes the memory on the device of `like`; false where there is not enough. It is given back
  // while the kernels run; the allocator reuses it in stream order.
  bool reserve(Tensor const& like) {
    if (!copies_.any()) return true;
    ScalarType const type = to_scalar_type(type_);
    try {
      if (copies_.x) x_ = allocate(like, {given_.m, planned_.ldx}, type);
      if (copies_.weight) weight_ = allocate(like, {given_.n, planned_.ldw}, type);
      if (copies_.y) y_ = allocate(like, {given_.m, planned_.ldy}, type);
    } catch (std::exception const&) {
      return false;
    }
    if (copies_.x) planned_.x = x_->const_data_ptr();
    if (copies_.weight) planned_.weight = weight_->const_data_ptr();
    if (copies_.y) planned_.y = y_->mutable_data_ptr();
    return true;
  }

  // Launches the copies of the operands, into what was reserved.
  Status make(Device const& device, cudaStream_t stream) {
    Status status = Status::kSuccess;
    if (copies_.x) {
      status = run_copy_rows(given_.m, given_.k, given_.x, given_.ldx, x_->mutable_data_ptr(),
                             planned_.ldx, device, stream);
    }
    if (copies_.weight && status == Status::kSuccess) {
      status = run_copy_rows(given_.n, given_.k, given_.weight, given_.ldw,
                             weight_->mutable_data_ptr(), planned_.ldw, device, stream);
    }
    return status;
  }

  // To be called behind the product.
  Status copy_back(Device const& device, cudaStream_t stream) const {
    if (!copies_.y) return Status::kSuccess;
    return run_copy_rows(given_.m, given_.n, planned_.y, planned_.ldy, given_.y, given_.ldy, device,
                         stream);
  }

 private:
  GemmArgs given_, planned_;
  Copies copies_;
  DataType type_;
  std::optional<Tensor> x_, weight_, y_;
};

}  // namespace cutlass_fused
