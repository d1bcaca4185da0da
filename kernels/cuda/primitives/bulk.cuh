#pragma once

#include <cstddef>
#include <cstdint>

/// Copies of runs of bytes between memory and shared memory, by one thread, without registers (PTX ISA, "cp.async.bulk").
/// Addresses and sizes are multiples of 16.
namespace sluice::cuda {

/// Into shared memory; `barrier` has been told to expect the bytes.
__device__ __forceinline__ void bulk_load(uint32_t to, const std::byte* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

/// Out of it, what is there once `publish_shared` has followed whoever wrote it.
__device__ __forceinline__ void bulk_store(std::byte* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}

/// What this thread has written to shared memory is seen by copies that are asked for behind the next barrier.
__device__ __forceinline__ void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Ends a group of this thread's stores.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the last `Groups` of them have read shared memory.
template <int Groups>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Groups) : "memory");
}

}  // namespace sluice::cuda
