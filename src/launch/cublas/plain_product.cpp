#include "launch/cublas/plain_product.hpp"

#include <cstdio>
#include <limits>

#include "launch/as_they_lie/batched_product.hpp"
#include "launch/cublas/handles.hpp"
#include "launch/log_plan.hpp"
#include "launch/product.hpp"
#include "launch/recorded_products.hpp"

namespace cutlass_fused {
namespace {

// The distance between lines of a matrix as cuBLAS reads it; 0: it would be copied first, or is
// none that PyTorch tells cuBLAS.
int64_t find_lines(int64_t rows, int64_t k, int64_t const (&strides)[3], Major& major) {
  major = strides[2] == 1 && strides[1] >= k ? Major::kK : Major::kMn;
  bool const lies = major == Major::kK || (strides[1] == 1 && strides[2] >= rows);
  int64_t const lines = major == Major::kK ? strides[1] : strides[2];
  return lies && lines <= std::numeric_limits<int32_t>::max() ? lines : 0;
}

ProductPlan const& find_product(PlainProduct const& asked, GemmArgs const& gemm,
                                Precision precision, Device const& device) {
  Problem problem = make_problem(choose_math(DataType::kFloat32, precision, asked.k), gemm);
  if (asked.batch > 1) {
    make_batched(problem, asked.batch, asked.x_strides[0], asked.weight_strides[0]);
    return find_batched_plan(problem, device);
  }
  Tail const tail{Tail::kEpilogue, EpilogueId{names::kScaleLeakyReLU}, /*is_bare=*/true};
  return find_plan(problem, tail, device, {}).product;
}

void log_left(PlainProduct const& asked) {
  if (!logs_plans()) return;
  std::fprintf(stderr, "cutlass_fused: cublas %s product M=%lld N=%lld K=%lld: by PyTorch\n",
               asked.in_tf32 ? "tf32" : "fp32", static_cast<long long>(asked.m),
               static_cast<long long>(asked.n), static_cast<long long>(asked.k));
}

bool is_by_cublas(PlainProduct const& asked) {
  if (RecordedProducts::enabled()) return false;  // autotune sees nothing of PyTorch's
  Major x_major, weight_major;
  int64_t const ldx = find_lines(asked.m, asked.k, asked.x_strides, x_major);
  int64_t const ldw = find_lines(asked.n, asked.k, asked.weight_strides, weight_major);
  if (ldx == 0 || ldw == 0 || !fits_kernels(asked.m, asked.n, asked.k)) return false;
  Device const& device = supported_device("linear", asked.device);
  // PyTorch would make its handle for this thread, which no graph captures.
  if (!cublas_was_called(device) && is_capturing(device)) return false;
  Precision const precision = asked.in_tf32 ? Precision::kTf32 : Precision::kIeee;
  GemmArgs const gemm{asked.m,      asked.n,     asked.k,       asked.x, ldx,
                      asked.weight, ldw,         /*y=*/nullptr, asked.n, DataType::kFloat32,
                      x_major,      weight_major};
  if (find_product(asked, gemm, precision, device).by != ProductBy::kCublas) return false;
  remember_cublas(device);
  log_left(asked);
  return true;
}

}  // namespace
}  // namespace cutlass_fused

bool cutlass_fused_is_by_cublas(cutlass_fused::PlainProduct const* asked) try {
  return cutlass_fused::is_by_cublas(*asked);
} catch (std::exception const&) {
  return false;  // the op says what is wrong
}
