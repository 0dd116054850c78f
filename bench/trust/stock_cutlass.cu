// Products by kernels of CUTLASS itself, without a line of this library: what a sanitizer reports
// of them it reports of the schedule, and not of our epilogues.
//
//   stock_cutlass NAME: one of those that main lists, on ragged shapes. It checks each result.
//
// Built and run by `python -m bench.trust stock`.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cutlass/arch/barrier.h"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal.h"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/threadblock/threadblock_swizzle_streamk.h"
#include "cutlass/util/packed_stride.hpp"

using Half = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
constexpr int kAlignment = 8;  // 16 bytes

struct Shape {
  int m, n, k;
};
// Less than a tile, ragged in M, N and K, and more tiles than a GPU has multiprocessors.
constexpr Shape kShapes[] = {{8, 8, 8}, {300, 200, 136}, {1100, 2056, 264}};

#define CHECK_CUDA(call)                                                \
  if (cudaError_t const error = (call); error != cudaSuccess) {         \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
    std::exit(1);                                                       \
  }
#define CHECK_CUTLASS(call)                                                           \
  if (cutlass::Status const status = (call); status != cutlass::Status::kSuccess) {   \
    std::fprintf(stderr, "%s: %s\n", #call, cutlass::cutlassGetStatusString(status)); \
    std::exit(1);                                                                     \
  }

// An allocation of its own size, so that memcheck knows its end.
template <class T>
struct Array {
  explicit Array(size_t size) : size(size) { CHECK_CUDA(cudaMalloc(&data, size * sizeof(T))); }
  ~Array() { cudaFree(data); }
  Array(Array const&) = delete;
  void operator=(Array const&) = delete;

  T* data = nullptr;
  size_t size;
};

// D = A B^T, A (M, K), B (N, K), D (M, N): small integers, whose sums are exact. kAlongM: A lies
// along M.
template <class Gemm, class T = Half, bool kAlongM = false, class MakeArguments>
void run(Shape shape, MakeArguments make_arguments) {
  auto const [m, n, k] = shape;
  auto value = [](int i, int j) { return float((i * 5 + j * 3) % 7 - 3); };
  std::vector<T> a(size_t(m) * k), b(size_t(n) * k), d(size_t(m) * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < k; ++j) a[kAlongM ? size_t(j) * m + i : size_t(i) * k + j] = T(value(i, j));
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < k; ++j) b[size_t(i) * k + j] = T(value(i + 1, j));
  Array<T> const on_a(a.size()), on_b(b.size()), on_d(d.size());
  CHECK_CUDA(cudaMemcpy(on_a.data, a.data(), a.size() * sizeof(T), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(on_b.data, b.data(), b.size() * sizeof(T), cudaMemcpyHostToDevice));
  auto const arguments = make_arguments(shape, on_a.data, on_b.data, on_d.data);
  Array<char> const workspace(Gemm::get_workspace_size(arguments) + 1);
  Gemm gemm;
  CHECK_CUTLASS(Gemm::can_implement(arguments));
  CHECK_CUTLASS(gemm.initialize(arguments, workspace.data));
  CHECK_CUTLASS(gemm.run());
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemcpy(d.data(), on_d.data, d.size() * sizeof(T), cudaMemcpyDeviceToHost));
  // The values repeat with a period of 7 in both directions, and so do the sums.
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int at = 0; at < k; ++at) sum += value(i % 7, at) * value(j % 7 + 1, at);
      float const found = float(d[size_t(i) * n + j]);
      if (found == float(T(sum))) continue;
      std::fprintf(stderr, "(%d, %d, %d): d[%d, %d] must be %g, got %g\n", m, n, k, i, j, sum,
                   found);
      std::exit(1);
    }
  }
}

// As the products for compute capability 9.0: TMA, WGMMA, warps specialised, clusters of two.
template <class Mainloop, class Epilogue, class Scheduler>
struct Sm90 {
  using TileShape = cute::Shape<cute::_128, cute::_128, cute::_64>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, kAlignment, Half,
      Row, kAlignment, Epilogue>::CollectiveOp;
  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, Row, kAlignment, Half, Column,
      kAlignment, float, TileShape, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename CollectiveEpilogue::SharedStorage))>,
      Mainloop>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, CollectiveMainloop,
                                           CollectiveEpilogue, Scheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  static typename Gemm::Arguments arguments(Shape shape, Half* a, Half* b, Half* d) {
    auto const [m, n, k] = shape;
    using StrideA = typename Kernel::StrideA;
    using StrideB = typename Kernel::StrideB;
    using StrideC = typename Kernel::StrideC;
    using StrideD = typename Kernel::StrideD;
    return {cutlass::gemm::GemmUniversalMode::kGemm,
            {m, n, k, 1},
            {a, cutlass::make_cute_packed_stride(StrideA{}, {m, k, 1}), b,
             cutlass::make_cute_packed_stride(StrideB{}, {n, k, 1})},
            {{1.0f, 0.0f},
             nullptr,
             cutlass::make_cute_packed_stride(StrideC{}, {m, n, 1}),
             d,
             cutlass::make_cute_packed_stride(StrideD{}, {m, n, 1})}};
  }
  static void run_shape(Shape shape) { run<Gemm>(shape, arguments); }
};

using Pingpong = Sm90<cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                      cutlass::epilogue::TmaWarpSpecialized, cutlass::gemm::PersistentScheduler>;
using Cooperative =
    Sm90<cutlass::gemm::KernelTmaWarpSpecializedCooperative,
         cutlass::epilogue::TmaWarpSpecializedCooperative, cutlass::gemm::PersistentScheduler>;
// One tile a block.
using Single =
    Sm90<cutlass::gemm::KernelTmaWarpSpecialized, cutlass::epilogue::TmaWarpSpecialized, void>;

// As the one-launch products of fp32 for compute capability 9.0: warps that copy with cp.async, and
// tell an mbarrier when that is done; warps that wait for it, read A from shared memory and
// multiply with WGMMA. A lies along M, so that CUTLASS reads it into registers, as ours does.
struct CopyAsync {
  using TileShape = cute::Shape<cute::_128, cute::_128, cute::_32>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, 4, float, Row, 4,
      cutlass::epilogue::NoSmemWarpSpecialized>::CollectiveOp;
  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, cutlass::tfloat32_t, Column, 4,
      cutlass::tfloat32_t, Column, 4, float, TileShape, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename CollectiveEpilogue::SharedStorage))>,
      cutlass::gemm::KernelCpAsyncWarpSpecialized>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>,
                                                      CollectiveMainloop, CollectiveEpilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  static typename Gemm::Arguments arguments(Shape shape, float* a, float* b, float* d) {
    auto const [m, n, k] = shape;
    using StrideA = typename Kernel::StrideA;
    using StrideB = typename Kernel::StrideB;
    using StrideC = typename Kernel::StrideC;
    using StrideD = typename Kernel::StrideD;
    using Number = cutlass::tfloat32_t;
    return {cutlass::gemm::GemmUniversalMode::kGemm,
            {m, n, k, 1},
            {reinterpret_cast<Number*>(a), cutlass::make_cute_packed_stride(StrideA{}, {m, k, 1}),
             reinterpret_cast<Number*>(b), cutlass::make_cute_packed_stride(StrideB{}, {n, k, 1})},
            {{1.0f, 0.0f},
             nullptr,
             cutlass::make_cute_packed_stride(StrideC{}, {m, n, 1}),
             d,
             cutlass::make_cute_packed_stride(StrideD{}, {m, n, 1})}};
  }
  static void run_shape(Shape shape) { run<Gemm, float, true>(shape, arguments); }
};

// As the products for every GPU: cp.async and mma.sync, data-parallel or stream-K.
template <class Swizzle>
struct Sm80 {
  using Gemm = cutlass::gemm::device::GemmUniversal<
      Half, Row, Half, Column, Half, Row, float, cutlass::arch::OpClassTensorOp,
      cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 128, 32>,
      cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>,
      cutlass::epilogue::thread::LinearCombination<Half, kAlignment, float, float>, Swizzle, 4,
      kAlignment, kAlignment>;

  static typename Gemm::Arguments arguments(Shape shape, Half* a, Half* b, Half* d) {
    auto const [m, n, k] = shape;
    return {cutlass::gemm::GemmUniversalMode::kGemm,
            {m, n, k},
            1,
            {1.0f, 0.0f},
            a,
            b,
            d,
            d,
            int64_t(m) * k,
            int64_t(n) * k,
            int64_t(m) * n,
            int64_t(m) * n,
            k,
            k,
            n,
            n};
  }
  static void run_shape(Shape shape) { run<Gemm>(shape, arguments); }
};

using DataParallel = Sm80<cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>>;
using StreamK = Sm80<cutlass::gemm::threadblock::ThreadblockSwizzleStreamK>;

// A ring of stages between warps, as pipelines have it: half of the threads copy a stage once it
// was read, the others read it once it is there. kOneLane: behind a __syncwarp one lane tells that
// its warp has read, as in our kernels; else each thread tells of itself, as in CUTLASS's pipelines
// of copies by threads. Both are right.
namespace stock_cutlass {

using Barrier = cutlass::arch::ClusterBarrier;
constexpr int kStages = 2, kHalf = 64, kSteps = 12;

template <bool kOneLane>
__global__ void pass_stages(float const* from, float* to) {
  __shared__ float stages[kStages][kHalf];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      Barrier::init(&full[i], kHalf);
      Barrier::init(&empty[i], kOneLane ? kHalf / 32 : kHalf);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  int const own = int(threadIdx.x) % kHalf;
  float sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    int const stage = step % kStages;
    unsigned const phase = step / kStages % 2;
    if (threadIdx.x >= kHalf) {
      Barrier::wait(&empty[stage], phase ^ 1);
      unsigned const at = unsigned(__cvta_generic_to_shared(&stages[stage][own]));
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at),
                   "l"(from + step * kHalf + own)
                   : "memory");
      cutlass::arch::cpasync_barrier_arrive_noinc(&full[stage]);
    } else {
      Barrier::wait(&full[stage], phase);
      sum += *static_cast<float const volatile*>(&stages[stage][kHalf - 1 - own]);
      if constexpr (kOneLane) {
        __syncwarp();
        if (own % 32 == 0) Barrier::arrive(&empty[stage]);
      } else {
        Barrier::arrive(&empty[stage]);
      }
    }
  }
  if (threadIdx.x < kHalf) to[own] = sum;
}

template <bool kOneLane>
void run_stages(Shape) {
  std::vector<float> from(size_t(kSteps) * kHalf), to(kHalf);
  for (size_t i = 0; i < from.size(); ++i) from[i] = float(i % 101);
  Array<float> const on_from(from.size()), on_to(to.size());
  CHECK_CUDA(
      cudaMemcpy(on_from.data, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice));
  pass_stages<kOneLane><<<1, 2 * kHalf>>>(on_from.data, on_to.data);
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemcpy(to.data(), on_to.data, to.size() * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kHalf; ++i) {
    float sum = 0;
    for (int step = 0; step < kSteps; ++step) sum += from[size_t(step) * kHalf + kHalf - 1 - i];
    if (to[i] == sum) continue;
    std::fprintf(stderr, "stages: to[%d] must be %g, got %g\n", i, sum, to[i]);
    std::exit(1);
  }
}

}  // namespace stock_cutlass

struct Stock {
  char const* name;
  int oldest;  // compute capability
  void (*run_shape)(Shape);
};
constexpr Stock kStock[] = {
    {"sm90_pingpong", 90, Pingpong::run_shape},
    {"sm90_cooperative", 90, Cooperative::run_shape},
    {"sm90_single", 90, Single::run_shape},
    {"sm80_data_parallel", 80, DataParallel::run_shape},
    {"sm80_stream_k", 80, StreamK::run_shape},
    {"sm90_copy_async", 90, CopyAsync::run_shape},
    {"stages_one_lane", 90, stock_cutlass::run_stages<true>},
    {"stages_each_thread", 90, stock_cutlass::run_stages<false>},
};

int main(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "--list") == 0) {
    for (Stock const& stock : kStock) std::printf("%s\n", stock.name);
    return 0;
  }
  for (Stock const& stock : kStock) {
    if (count != 2 || std::strcmp(words[1], stock.name) != 0) continue;
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    if (properties.major * 10 + properties.minor < stock.oldest) {
      std::fprintf(stderr, "%s needs a GPU of compute capability %d\n", stock.name, stock.oldest);
      return 1;
    }
    for (Shape shape : kShapes) stock.run_shape(shape);
    std::printf("%s: all results right\n", stock.name);
    return 0;
  }
  std::fprintf(stderr, "stock_cutlass NAME, a name that --list tells\n");
  return 2;
}
