// FlashInfer's two kernels for decode attention over pages. One multiplies on CUDA cores. The other is its prefill kernel with
// tiles of 16 rows on tensor cores, which its decode wrapper takes with use_tensor_cores=True.
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>
#include <functional>

#include "paged_case.cuh"

// Newer versions plan with a length that all queries have, or 0; build.py says which they are.
#ifdef PEERS_PLANS_UNIFORM_LENGTH
#define PEERS_UNIFORM_LENGTH 0,
#else
#define PEERS_UNIFORM_LENGTH
#endif

namespace peers {
namespace {

using Bf16 = __nv_bfloat16;
using Variant = flashinfer::DefaultAttention<false, false, false, false>;  // no mask, window, cap of logits, slopes
using DecodeParams = flashinfer::BatchDecodeParams<Bf16, Bf16, Bf16, int32_t>;
using PrefillParams = flashinfer::BatchPrefillPagedParams<Bf16, Bf16, Bf16, int32_t>;
constexpr auto kNoPosition = flashinfer::PosEncodingMode::kNone;

const float kScale = 1 / std::sqrt(static_cast<float>(kDim));

/// What plans are written to, and what partial results are. The sizes are those of FlashInfer's own benchmarks or more.
class Workspace {
 public:
  Workspace() : floats(size_t{512} << 20), ints(size_t{64} << 20) { PEERS_CHECK(cudaMallocHost(&pinned, ints.bytes())); }
  ~Workspace() { cudaFreeHost(pinned); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  template <typename T>
  T* number(int64_t offset) const {
    return flashinfer::GetPtrFromBaseOffset<T>(ints.data(), offset);
  }
  template <typename T>
  T* partial(int64_t offset) const {
    return flashinfer::GetPtrFromBaseOffset<T>(floats.data(), offset);
  }

  DeviceArray<char> floats, ints;
  void* pinned = nullptr;
};

/// A case with the arrays that FlashInfer wants of it.
struct FlashInferCase {
  explicit FlashInferCase(const std::string& name)
      : paged(name), page_starts(paged.starts()), last_page(std::vector<int>(paged.sequences(), kPage)) {
    std::vector<int> rows(paged.sequences() + 1);
    std::iota(rows.begin(), rows.end(), 0);
    query_starts_host = rows;
  }
  flashinfer::paged_kv_t<Bf16, int32_t> pool(int64_t call) const {
    return {static_cast<uint32_t>(paged.heads()),
            kPage,
            kDim,
            static_cast<uint32_t>(paged.sequences()),
            flashinfer::QKVLayout::kHND,
            paged.k(),
            paged.v(),
            paged.list(call),
            page_starts.data(),
            last_page.data()};
  }

  PagedCase paged;
  DeviceArray<int> page_starts, last_page;
  std::vector<int> query_starts_host;  // one query a sequence
};

template <uint32_t kGroup>
flashinfer::DecodePlanInfo plan_decode(const FlashInferCase& of, const Workspace& workspace) {
  flashinfer::DecodePlanInfo plan;
  std::vector<int> starts = of.paged.starts();
  const auto estimate =
      flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<kGroup, kDim, kNoPosition, Variant, DecodeParams>;
  PEERS_CHECK(flashinfer::DecodePlan<kDim, kNoPosition, Variant, DecodeParams>(
      workspace.floats.data(), workspace.floats.bytes(), workspace.ints.data(), workspace.pinned, workspace.ints.bytes(), plan,
      starts.data(), of.paged.sequences(), of.paged.query_heads(), kPage, false, nullptr, estimate));
  PEERS_CHECK(cudaDeviceSynchronize());
  return plan;
}

flashinfer::DecodePlanInfo plan_decode(const FlashInferCase& of, const Workspace& workspace) {
  switch (of.paged.group()) {
    case 1:
      return plan_decode<1>(of, workspace);
    case 2:
      return plan_decode<2>(of, workspace);
    case 4:
      return plan_decode<4>(of, workspace);
    case 8:
      return plan_decode<8>(of, workspace);
    default:
      throw std::runtime_error("FlashInfer has no group of " + std::to_string(of.paged.group()));
  }
}

Call on_cuda_cores(const FlashInferCase& of, const Workspace& workspace, bool early_launch) {
  const flashinfer::DecodePlanInfo plan = plan_decode(of, workspace);
  return [&of, &workspace, plan, early_launch](int64_t call, cudaStream_t stream) {
    const int heads = of.paged.query_heads();
    DecodeParams params(const_cast<Bf16*>(of.paged.q()), nullptr, of.pool(call), of.paged.out(), nullptr, nullptr, heads,
                        heads * kDim, kDim, -1, 0, kScale, 1, 1e4);
    params.request_indices = workspace.number<int32_t>(plan.request_indices_offset);
    params.kv_tile_indices = workspace.number<int32_t>(plan.kv_tile_indices_offset);
    params.o_indptr = workspace.number<int32_t>(plan.o_indptr_offset);
    params.kv_chunk_size_ptr = workspace.number<int32_t>(plan.kv_chunk_size_ptr_offset);
    params.padded_batch_size = plan.padded_batch_size;
    Bf16* values = plan.split_kv ? workspace.partial<Bf16>(plan.v_offset) : nullptr;
    float* sums = plan.split_kv ? workspace.partial<float>(plan.s_offset) : nullptr;
    PEERS_CHECK(flashinfer::BatchDecodeWithPagedKVCacheDispatched<kDim, kNoPosition, Variant>(params, values, sums, early_launch,
                                                                                              stream));
  };
}

flashinfer::PrefillPlanInfo plan_tensor_cores(const FlashInferCase& of, const Workspace& workspace) {
  constexpr int kWindow = -1;
  constexpr int kSplitSize = -1;  // chosen by the plan
  constexpr int64_t kColocated = 0;
  flashinfer::PrefillPlanInfo plan;
  std::vector<int> queries = of.query_starts_host;
  std::vector<int> starts = of.paged.starts();
  PEERS_CHECK(flashinfer::PrefillPlan<int32_t>(
      workspace.floats.data(), workspace.floats.bytes(), workspace.ints.data(), workspace.pinned, workspace.ints.bytes(), plan,
      queries.data(), starts.data(), of.paged.sequences(), of.paged.sequences(), of.paged.query_heads(), of.paged.heads(), kDim,
      kDim, kPage, false, sizeof(Bf16), kWindow, kSplitSize, false, kColocated, PEERS_UNIFORM_LENGTH nullptr));
  PEERS_CHECK(cudaDeviceSynchronize());
  if (plan.cta_tile_q != 16) throw std::runtime_error("FlashInfer plans tiles of " + std::to_string(plan.cta_tile_q) + " rows");
  return plan;
}

Call on_tensor_cores(const FlashInferCase& of, const DeviceArray<int>& query_starts, const Workspace& workspace,
                     bool early_launch) {
  const flashinfer::PrefillPlanInfo plan = plan_tensor_cores(of, workspace);
  return [&of, &query_starts, &workspace, plan, early_launch](int64_t call, cudaStream_t stream) {
    const int heads = of.paged.query_heads();
    PrefillParams params(const_cast<Bf16*>(of.paged.q()), of.pool(call), nullptr, query_starts.data(), nullptr, nullptr,
                         of.paged.out(), nullptr, nullptr, heads, heads * kDim, kDim, -1, 0, kScale, 1, 1e4);
    params.request_indices = workspace.number<int32_t>(plan.request_indices_offset);
    params.qo_tile_indices = workspace.number<int32_t>(plan.qo_tile_indices_offset);
    params.kv_tile_indices = workspace.number<int32_t>(plan.kv_tile_indices_offset);
    params.o_indptr = workspace.number<int32_t>(plan.o_indptr_offset);
    params.kv_chunk_size_ptr = workspace.number<int32_t>(plan.kv_chunk_size_ptr_offset);
    params.padded_batch_size = plan.padded_batch_size;
    params.max_total_num_rows = plan.total_num_rows;
    Bf16* values = nullptr;
    float* sums = nullptr;
    if (plan.split_kv) {
      params.merge_indptr = workspace.number<int32_t>(plan.merge_indptr_offset);
      values = workspace.partial<Bf16>(plan.v_offset);
      sums = workspace.partial<float>(plan.s_offset);
    }
    PEERS_CHECK(
        flashinfer::BatchPrefillWithPagedKVCacheDispatched<16, kDim, kDim, kNoPosition, false, flashinfer::MaskMode::kNone,
                                                           Variant, PrefillParams>(params, values, sums, early_launch, stream));
  };
}

void run_case(const Workspace& workspace, double seconds, const std::string& name) {
  const FlashInferCase of(name);
  const DeviceArray<int> query_starts(of.query_starts_host);
  for (const bool early_launch : {false, true}) {
    const char* variant = early_launch ? "early launch" : "";
    measure("FlashInfer CUDA cores", variant, of.paged, seconds, on_cuda_cores(of, workspace, early_launch));
    measure("FlashInfer tensor cores", variant, of.paged, seconds, on_tensor_cores(of, query_starts, workspace, early_launch));
  }
}

}  // namespace
}  // namespace peers

int main(int count, char** arguments) { return peers::run_cases<peers::Workspace>(count, arguments, peers::run_case); }
