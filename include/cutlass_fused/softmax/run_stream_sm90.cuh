// launch_row_softmax_stream: how many blocks share a row, and the launch.
#pragma once

#include <algorithm>
#include <atomic>

#include "cutlass_fused/softmax/row_softmax_stream_sm90.cuh"

namespace cutlass_fused {

// A launch in clusters, while the kernel before it ends.
struct StreamLaunch {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config;

  StreamLaunch(int64_t clusters, int blocks, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {unsigned(blocks), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config = {dim3(unsigned(clusters * blocks)),
              dim3(StreamShape::kAllThreads),
              StreamShape::kRingBytes,
              stream,
              attributes,
              2};
  }
  StreamLaunch(StreamLaunch const&) = delete;  // config points to the attributes
};

// How many clusters of so many blocks the GPU runs at a time, or 0. Asked once per GPU and kernel:
// the answer takes longer than a launch.
template <DataType kType, class Prologue>
int count_stream_clusters(Device const& device, int log2_blocks) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices][4];  // one more than the number
  std::atomic<int>* const memo =
      device.index < kDevices ? &known[device.index][log2_blocks] : nullptr;
  if (memo != nullptr) {
    int const count = memo->load(std::memory_order_relaxed);
    if (count > 0) return count - 1;
  }
  StreamLaunch launch(1, 1 << log2_blocks, nullptr);
  launch.config.numAttrs = 1;  // the cluster's size
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, row_softmax_stream<kType, Prologue>,
                                     &launch.config) != cudaSuccess) {
    cudaGetLastError();  // clears it
    clusters = 0;
  }
  if (memo != nullptr) memo->store(clusters + 1, std::memory_order_relaxed);
  return clusters;
}

struct StreamPlan {
  int blocks = 0;  // that share a row; 0: it does not fit
  int64_t clusters, slice, chunks;
};

// The number of blocks by the estimated time of the block that has most to do.
template <DataType kType, class Prologue>
StreamPlan plan_stream(int64_t rows, int64_t columns, Device const& device) {
  using Shape = StreamShape;
  // What is to be read ahead, and as bytes that could be read meanwhile: what it costs where the
  // ring does not hold more than two slices, to exchange with each block, and a row at least.
  // Fitted to 34 shapes in fp32 and 85 in bf16 on an H200. There more elements come with the same
  // bytes, a row takes longer, and what else it costs is hidden.
  constexpr bool kFloat = kType == DataType::kFloat32;
  constexpr int64_t kAhead = Shape::kAhead * Shape::kChunkBytes;
  constexpr int64_t kFull = kFloat ? 15 * 1024 : -2 * 1024;
  constexpr int64_t kExchange = kFloat ? 2816 : 256, kLeastExchange = (kFloat ? 28 : 40) * 1024;
  constexpr int64_t kLine = kLineBytes / 16;  // pieces: slices, too, begin on lines
  // The line in which a row begins may begin in front of it.
  int64_t const pieces = ceil_div(columns + kLineBytes / size_of(kType) - 1, kPieceWidth<kType>);
  int64_t least = INT64_MAX;
  StreamPlan plan;
  for (int log2_blocks = 0; (1 << log2_blocks) <= kMostStreamBlocks; ++log2_blocks) {
    int const blocks = 1 << log2_blocks;
    int64_t const slice = ceil_div(ceil_div(pieces, blocks), kLine) * kLine;
    int64_t const chunks = ceil_div(slice, Shape::kChunkPieces);
    if (chunks > Shape::kSlots) continue;
    int64_t const clusters = count_stream_clusters<kType, Prologue>(device, log2_blocks);
    if (clusters == 0) continue;
    // The bytes that a block handles, and one slice more to fill the ring and to drain it.
    int64_t const rounds = ceil_div(rows, clusters) + 1, bytes = slice * 16;
    int64_t const lacking = std::max<int64_t>(0, kAhead - (Shape::kRingBytes - bytes)) +
                            (2 * bytes >= Shape::kRingBytes ? kFull : 0);
    int64_t const alone = bytes + lacking;
    int64_t const cost =
        rounds * (blocks > 1 ? std::max(alone + blocks * kExchange, kLeastExchange) : alone);
    if (cost < least) {
      least = cost;
      plan = {blocks, std::min(rows, clusters), slice, chunks};
    }
  }
  return plan;
}

// kNoKernel if the row does not fit, or the GPU cannot run such clusters: another kernel serves.
// The rows of x and y must lie equally far behind boundaries of 16 bytes (has_equal_shifts).
template <DataType kType, class Prologue>
Status launch_row_softmax_stream(RowSoftmaxParams<Prologue> const& params, Device const& device,
                                 cudaStream_t stream) {
  auto const kernel = row_softmax_stream<kType, Prologue>;
  if (device.shared_memory < kStreamSharedBytes) return Status::kNoKernel;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           StreamShape::kRingBytes) != cudaSuccess) {
    return Status::kCudaError;
  }
  StreamPlan const plan = plan_stream<kType, Prologue>(params.rows, params.columns, device);
  if (plan.blocks == 0) return Status::kNoKernel;
  StreamLaunch const launch(plan.clusters, plan.blocks, stream);
  StreamParams<Prologue> const stream_params{params, int(plan.slice), int(plan.chunks)};
  cudaError_t const error = cudaLaunchKernelEx(&launch.config, kernel, stream_params);
  if (error == cudaSuccess) return Status::kSuccess;
  if (error != cudaErrorInvalidClusterSize && error != cudaErrorLaunchOutOfResources) {
    return Status::kCudaError;
  }
  cudaGetLastError();  // clears it
  return Status::kNoKernel;
}

}  // namespace cutlass_fused
