// The mainloop of fp16x3: CUTLASS's loads, and our products of what they bring.
#pragma once

#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass_fused/gemm/fp16x3/multiply.hpp"

namespace cutlass_fused {

// The mainloop of split rows, made of one of CUTLASS.
template <class Base>
struct SplitMainloop : Base {
  using typename Base::MainloopPipeline;
  using typename Base::Params;
  using typename Base::PipelineState;
  using typename Base::TensorStorage;

  template <class Sums>
  CUTLASS_DEVICE void mma(MainloopPipeline pipeline, PipelineState read, Sums& sums, int stages,
                          int thread, TensorStorage& shared, Params const&) {
    multiply<typename Base::SmemLayoutA>(pipeline, read, sums, stages, thread, shared);
  }

  // Nothing is left to be waited for.
  CUTLASS_DEVICE void mma_tail(MainloopPipeline, PipelineState, int) {}

 protected:
  template <class SharedA, class Sums>
  CUTLASS_DEVICE void multiply(MainloopPipeline pipeline, PipelineState read, Sums& sums,
                               int stages, int thread, TensorStorage& shared) {
    using namespace cute;
    auto const staged_a = make_tensor(make_smem_ptr(shared.smem_A.data()), SharedA{});
    auto const staged_b =
        make_tensor(make_smem_ptr(shared.smem_B.data()), typename Base::SmemLayoutB{});
    typename Base::TiledMma mma;
    int const warpgroup = __shfl_sync(0xffffffff, thread / 128, 0);
    auto const thread_mma = mma.get_slice(warpgroup * 128);
    auto const a = thread_mma.make_fragment_A(thread_mma.partition_A(staged_a));
    auto const b = thread_mma.make_fragment_B(thread_mma.partition_B(staged_b));
    PipelineState release = read;
    multiply_split(
        mma, a, b, sums, stages,
        [&] {
          pipeline.consumer_wait(read, pipeline.consumer_try_wait(read));
          int const index = read.index();
          ++read;
          return index;
        },
        [&] {
          pipeline.consumer_release(release);
          ++release;
        });
  }
};

}  // namespace cutlass_fused
