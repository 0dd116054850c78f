// Launches of batch_norm_cluster.
#pragma once

#include <type_traits>

#include "cutlass_fused/norm/on_chip/kernel_sm90.cuh"

namespace cutlass_fused {

template <class Block>
Status launch_batch_norm_cluster(BatchNormClusterParams const& params, int blocks,
                                 size_t shared_bytes, Device const& device, cudaStream_t stream) {
  auto const kernel = batch_norm_cluster<Block>;
  // The limit is one for all launches: those of another thread may come before the next line.
  if (shared_bytes > 0 &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           int(most_cluster_shared_bytes(device))) != cudaSuccess) {
    return Status::kCudaError;
  }
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(blocks), 1, 1};
  int64_t const groups = ceil_div(params.x.columns, Block::kColumns);
  cudaLaunchConfig_t const config{dim3(unsigned(groups * blocks)),
                                  dim3(Block::kThreads),
                                  shared_bytes,
                                  stream,
                                  attributes,
                                  blocks > 1 ? 2u : 1u};
  cudaError_t const error = cudaLaunchKernelEx(&config, kernel, params);
  if (error == cudaSuccess) return Status::kSuccess;
  if (error != cudaErrorInvalidClusterSize && error != cudaErrorLaunchOutOfResources) {
    return Status::kCudaError;
  }
  cudaGetLastError();  // clears it
  return Status::kNoKernel;
}

// The kernel of a plan, as a call of use(Block{}).
template <DataType kIn, class Use>
Status for_cluster_block(ClusterPlan const& plan, Use const& use) {
  auto const for_pieces = [&](auto lanes) {
    constexpr int kWidth = kPieceWidth<kIn>, kLanes = lanes();
    return plan.pieces > 0
               ? use(ClusterBlock<kIn, kWidth, kLanes, kClusterThreads, kClusterPieces>{})
               : use(ClusterBlock<kIn, kWidth, kLanes, kClusterThreads, 0>{});
  };
  if (plan.aligned) {
    switch (plan.group_bytes) {
      case 32:
        return for_pieces(std::integral_constant<int, 2>{});
      case 64:
        return for_pieces(std::integral_constant<int, 4>{});
      case 128:
        return for_pieces(std::integral_constant<int, 8>{});
      default:
        return for_pieces(std::integral_constant<int, 16>{});
    }
  }
  return plan.pieces > 0 ? use(ClusterBlock<kIn, 1, 32, kClusterThreads, kClusterElements>{})
                         : use(ClusterBlock<kIn, 1, 32, kClusterThreads, 0>{});
}

template <DataType kIn>
Status run_batch_norm_cluster(Matrix const& x, ClusterPlan const& plan, Vector const& gamma,
                              Vector const& beta, float eps, RunningStatistics const& running,
                              float* mean, float* rstd, StoredShifts const& stored, void* y,
                              Device const& device, cudaStream_t stream) {
  if (!plan || device.code < 90) return Status::kNoKernel;
  int64_t* const count = running.cumulative ? nullptr : running.num_batches_tracked;
  BatchNormClusterParams const params{x,
                                      y,
                                      plan.rows_per_block,
                                      1.0 / double(x.rows),
                                      gamma,
                                      beta,
                                      eps,
                                      running,
                                      mean,
                                      rstd,
                                      stored,
                                      count};
  auto const shared_bytes = size_t(find_cluster_shared_bytes(plan));
  return for_cluster_block<kIn>(plan, [&](auto block) {
    return launch_batch_norm_cluster<decltype(block)>(params, plan.blocks, shared_bytes, device,
                                                      stream);
  });
}

#define CUTLASS_FUSED_INSTANTIATE_BATCH_NORM_CLUSTER(TYPE)                                 \
  template Status run_batch_norm_cluster<DataType::TYPE>(                                  \
      Matrix const&, ClusterPlan const&, Vector const&, Vector const&, float,              \
      RunningStatistics const&, float*, float*, StoredShifts const&, void*, Device const&, \
      cudaStream_t)

}  // namespace cutlass_fused
