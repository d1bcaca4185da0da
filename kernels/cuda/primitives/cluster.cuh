#pragma once

#include <cstdint>

/// Blocks of a cluster and each other's shared memory. Needs no header of CUDA's, so that generated kernels can have it, too; a
/// block that was launched without a cluster is one by itself.
namespace sluice::cuda {

__device__ __forceinline__ uint32_t cluster_blocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
/// The same by threads that have written nothing the others are to see, but for mbarriers, which fence.mbarrier_init publishes:
/// it does not wait for memory.
__device__ __forceinline__ void arrive_in_cluster_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
/// Waits until all threads of the cluster have arrived, and sees what they wrote before.
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void sync_cluster() {
  arrive_in_cluster();
  wait_for_cluster();
}
/// Where block `rank` has what this block has at `own`, in shared memory.
template <class T>
__device__ __forceinline__ T* in_block(T* own, uint32_t rank) {
  T* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(own), "r"(rank));
  return theirs;
}
/// The same of a shared address.
__device__ __forceinline__ uint32_t place_in(uint32_t rank, uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

/// Writes eight bytes to another block, whose `barrier` counts them: whoever waits for that sees them, without the wait for
/// memory that a barrier of the cluster has.
__device__ __forceinline__ void send_eight(uint32_t target, uint64_t bytes, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(target), "l"(bytes),
               "r"(barrier)
               : "memory");
}
/// Waits for what other blocks of the cluster sent, or did before they arrived.
__device__ __forceinline__ void wait_for_blocks(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace sluice::cuda
