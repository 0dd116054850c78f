// A product whose operands TMA can read, and whose y it can write, in place of one of unaligned
// rows: a copy costs less than what the SM80 kernels for such rows take longer.
#pragma once

#include <exception>

#include "cutlass_fused/common/copy_rows.hpp"
#include "cutlass_fused/plan/choice_sm90.hpp"
#include "ops/allocate.hpp"

namespace cutlass_fused {

// First a plan, by which a kernel can be chosen; make() makes it true.
class AlignedRows {
 public:
  // `gemm` of 16-bit elements.
  AlignedRows(GemmArgs const& gemm, DataType type) : given_(gemm), planned_(gemm), type_(type) {
    copies_x_ = plan(!tma_reads_rows(gemm.x, gemm.m, gemm.ldx, size_of(type)), planned_.x,
                     planned_.ldx, gemm.k);
    copies_weight_ = plan(!tma_reads_rows(gemm.weight, gemm.n, gemm.ldw, size_of(type)),
                          planned_.weight, planned_.ldw, gemm.k);
    // Few rows of y are written as they are, by the split kernels.
    copies_y_ = plan(gemm.y_type == type && gemm.m >= kManyRows && !tma_writes_rows(gemm, type),
                     planned_.y, planned_.ldy, gemm.n);
  }

  bool copies_operands() const { return copies_x_ || copies_weight_; }
  bool any() const { return copies_operands() || copies_y_; }

  // Where there are none yet, with null pointers to the copies.
  GemmArgs const& gemm() const { return planned_; }

  // The kernel writes y as it lies.
  void leave_y() {
    planned_.y = given_.y;
    planned_.ldy = given_.ldy;
    copies_y_ = false;
  }

  // Takes the memory on the device of `like`; false where there is not enough. It is given back
  // while the kernels run; the allocator reuses it in stream order.
  bool reserve(Tensor const& like) {
    ScalarType const type = to_scalar_type(type_);
    try {
      if (copies_x_) x_ = allocate(like, {given_.m, planned_.ldx}, type);
      if (copies_weight_) weight_ = allocate(like, {given_.n, planned_.ldw}, type);
      if (copies_y_) y_ = allocate(like, {given_.m, planned_.ldy}, type);
    } catch (std::exception const&) {
      return false;
    }
    if (copies_x_) planned_.x = x_->const_data_ptr();
    if (copies_weight_) planned_.weight = weight_->const_data_ptr();
    if (copies_y_) planned_.y = y_->mutable_data_ptr();
    return true;
  }

  // Launches the copies of the operands, into what was reserved.
  Status make(Device const& device, cudaStream_t stream) {
    Status status = Status::kSuccess;
    if (copies_x_) {
      status = run_copy_rows(given_.m, given_.k, given_.x, given_.ldx, x_->mutable_data_ptr(),
                             planned_.ldx, device, stream);
    }
    if (copies_weight_ && status == Status::kSuccess) {
      status = run_copy_rows(given_.n, given_.k, given_.weight, given_.ldw,
                             weight_->mutable_data_ptr(), planned_.ldw, device, stream);
    }
    return status;
  }

  // To be called behind the product.
  Status copy_back(Device const& device, cudaStream_t stream) const {
    if (!copies_y_) return Status::kSuccess;
    return run_copy_rows(given_.m, given_.n, planned_.y, planned_.ldy, given_.y, given_.ldy, device,
                         stream);
  }

 private:
  static constexpr int64_t kManyRows = 512;

  template <class Pointer>
  bool plan(bool copies, Pointer& data, int64_t& ld, int64_t columns) const {
    if (!copies) return false;
    int64_t const whole = 16 / size_of(type_);
    data = nullptr;
    ld = ceil_div(columns, whole) * whole;
    return true;
  }

  GemmArgs given_, planned_;
  DataType type_;
  bool copies_x_, copies_weight_, copies_y_;
  std::optional<Tensor> x_, weight_, y_;
};

}  // namespace cutlass_fused
