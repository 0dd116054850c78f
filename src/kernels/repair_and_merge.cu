// Launch of the kernel that repairs a product of split rows and merges its statistics.
#include "cutlass_fused/gemm/fp16x3/repair_and_merge.cuh"
#include "cutlass_fused/gemm/fp16x3/repair_and_merge.hpp"

namespace cutlass_fused {

Status run_repair_and_merge(ProductToRepair const& product, Ranges const& ranges,
                            void const* workspace, Vector const& gamma, Vector const& beta,
                            float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, StoredShifts const& stored,
                            Device const& device, cudaStream_t stream) {
  GemmArgs const& gemm = product.gemm;
  Matrix const z{gemm.m, gemm.n, gemm.y, gemm.ldy, gemm.y_type};
  RepairAndMergeParams<ScaleLeakyReLU> const params{
      make_repair_params<ScaleLeakyReLU>(gemm, product.epilogue, product.x, product.weight),
      make_merge_params(z, ranges, PartialsFrom::kRepairedProduct, workspace, gamma, beta, eps,
                        running, statistics, stored)};
  static_assert(MergeBlock::kLanes == kColumnsToRepairAndMerge);
  dim3 const grid(unsigned(ceil_div(gemm.n, MergeBlock::kLanes)));
  return KernelLaunch{device, stream, grid, dim3(MergedBlock::kThreads)}(
      repair_and_merge<ScaleLeakyReLU>, params);
}

}  // namespace cutlass_fused
