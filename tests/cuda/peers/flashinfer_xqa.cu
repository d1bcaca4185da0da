// XQA, the decode kernel behind FlashInfer's trtllm_batch_decode_with_kv_cache. Its group is a macro: one program a group.
#include "mha.cu"

// After it, since XQA's sources look at macros of their own.
#include "paged_case.cuh"

namespace peers {
namespace {

/// What blocks meet at, and what partial results are written to.
struct Workspace {
  Workspace() : semaphores(size_t{2} << 20), scratch(size_t{1} << 30) { semaphores.fill_bytes(0); }
  DeviceArray<uint32_t> semaphores;
  DeviceArray<char> scratch;
};

int multiprocessors() {
  int count = 0;
  PEERS_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

void run_case(const Workspace& workspace, double seconds, const std::string& name) {
  const PagedCase paged(name);
  if (paged.group() != HEAD_GRP_SIZE) {
    throw std::runtime_error("this program was built for groups of " + std::to_string(HEAD_GRP_SIZE) + ", not case " + name);
  }
  const uint32_t tokens = paged.listed() * kPage;
  const DeviceArray<uint32_t> lengths(std::vector<uint32_t>(paged.sequences(), tokens));
  constexpr uint64_t kHeadStride = kPage * kDim;
  for (const bool early_launch : {false, true}) {
    const auto call = [&](int64_t number, cudaStream_t stream) {
      launchMHAFlashInfer(multiprocessors(), paged.heads(), 0, 1, nullptr, reinterpret_cast<OutputHead*>(paged.out()),
                          reinterpret_cast<const InputHead*>(paged.q()), nullptr, reinterpret_cast<GMemCacheHead*>(paged.k()),
                          reinterpret_cast<GMemCacheHead*>(paged.v()), paged.list(number), tokens, lengths.data(),
                          paged.sequences(), 1, nullptr, workspace.semaphores.data(), workspace.scratch.data(), early_launch,
                          paged.heads() * kHeadStride, kDim, kHeadStride, stream);
    };
    measure("FlashInfer XQA", early_launch ? "early launch" : "", paged, seconds, call);
  }
}

}  // namespace
}  // namespace peers

int main(int count, char** arguments) { return peers::run_cases<peers::Workspace>(count, arguments, peers::run_case); }
