#include "launch/cublas/plain_product.hpp"

#include "launch/as_they_lie/batched_product.hpp"
#include "launch/log_plan.hpp"
#include "launch/product.hpp"
#include "launch/recorded_products.hpp"

namespace cutlass_fused {
namespace {

// The distance between lines of a matrix as cuBLAS reads it; 0: it would be copied first.
int64_t find_lines(int64_t rows, int64_t k, int64_t const (&strides)[3], Major& major) {
  major = strides[2] == 1 && strides[1] >= k ? Major::kK : Major::kMn;
  if (major == Major::kK) return strides[1];
  return strides[1] == 1 && strides[2] >= rows ? strides[2] : 0;
}

bool is_by_cublas(PlainProduct const& asked) {
  // Those see nothing of what PyTorch computes.
  if (logs_plans() || RecordedProducts::enabled()) return false;
  Major x_major, weight_major;
  int64_t const ldx = find_lines(asked.m, asked.k, asked.x_strides, x_major);
  int64_t const ldw = find_lines(asked.n, asked.k, asked.weight_strides, weight_major);
  if (ldx == 0 || ldw == 0 || !fits_kernels(asked.m, asked.n, asked.k)) return false;
  Precision const precision = asked.in_tf32 ? Precision::kTf32 : Precision::kIeee;
  GemmArgs const gemm{asked.m,      asked.n,     asked.k,       asked.x, ldx,
                      asked.weight, ldw,         /*y=*/nullptr, asked.n, DataType::kFloat32,
                      x_major,      weight_major};
  Problem problem = make_problem(choose_math(DataType::kFloat32, precision, asked.k), gemm);
  Device const& device = supported_device("linear", asked.device);
  if (asked.batch > 1) {
    make_batched(problem, asked.batch, asked.x_strides[0], asked.weight_strides[0]);
    return find_batched_plan(problem, device).by == ProductBy::kCublas;
  }
  Tail const tail{Tail::kEpilogue, EpilogueId{names::kScaleLeakyReLU}, /*is_bare=*/true};
  return find_plan(problem, tail, device, {}).product.by == ProductBy::kCublas;
}

}  // namespace
}  // namespace cutlass_fused

bool cutlass_fused_is_by_cublas(cutlass_fused::PlainProduct const* asked) try {
  return cutlass_fused::is_by_cublas(*asked);
} catch (std::exception const&) {
  return false;  // the op says what is wrong
}
