// Barriers in shared memory that count bytes, and what arrives at them: bulk copies from global
// memory, and messages from other blocks of the cluster.
//
// One thread begins a bulk copy of any size, which takes no registers on its way.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cutlass_fused {

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned shared_address(void const* p) {
  return unsigned(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Before other blocks of the cluster, or bulk copies, signal barriers that were initialised.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

__device__ __forceinline__ void arrive_and_expect(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// Whether the phase of this parity is over; it may wait a little for that. kFromCluster: what other
// blocks of the cluster have written is visible then, too.
template <bool kFromCluster>
__device__ __forceinline__ bool has_completed(uint64_t* barrier, int parity) {
  unsigned done;
  if constexpr (kFromCluster) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "selp.b32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.b32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
  return done;
}

// A barrier that nothing has arrived at has completed parity 1.
template <bool kFromCluster = false>
__device__ __forceinline__ void wait_for(uint64_t* barrier, int parity) {
  while (!has_completed<kFromCluster>(barrier, parity)) {
  }
}

// Both addresses are aligned to 16 bytes; the barrier expects them.
__device__ __forceinline__ void copy_bulk(void* to, void const* from, int bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Between a thread's own stores to shared memory and a bulk copy to the same place.
__device__ __forceinline__ void order_before_bulk_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// 16 bytes into the same place of a block of the cluster, whose same barrier expects them.
__device__ __forceinline__ void send_to_block(int block, void* place, uint64_t* barrier,
                                              uint64_t low, uint64_t high) {
  asm volatile(
      "{\n"
      ".reg .b32 there, signal;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 signal, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [there], {%3, %4}, "
      "[signal];\n"
      "}" ::"r"(shared_address(place)),
      "r"(shared_address(barrier)), "r"(block), "l"(low), "l"(high)
      : "memory");
}

// All threads of the cluster call it, the lanes of a warp together.
__device__ __forceinline__ void meet_in_cluster() {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

__device__ __forceinline__ int blocks_of_cluster() {
  int blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
}

__device__ __forceinline__ int rank_in_cluster() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

#endif  // __CUDA_ARCH__ >= 900

}  // namespace cutlass_fused
