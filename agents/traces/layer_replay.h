#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agents/traces/layer_tensors.h"
#include "kernels/device.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// Throws FlowError for a flow that evicts tokens: who has left follows from all steps, and recorded layers have the queries of
/// their last steps alone.
void require_all_tokens(const FlowGraph& traced);

/// `traced` for layers that all run it, whatever the flow says of layers: what a layer of its own is given. `pattern`: the place
/// of the one that the layer has (LayerPatterns). Throws InputError or FlowError for a plan that `device` does not take, and for
/// several patterns where none is named.
Plan compile_for_one_layer(FlowGraph traced, const Device& device, std::optional<int> pattern = std::nullopt);

/// What a device gave for one step. Refers to the replay, until the next step.
struct LayerStep {
  std::span<const float> output;      // [query_heads, dim]
  std::span<const int32_t> selected;  // [kv_heads, pages] ascending, padded with -1; pages that the whole request has
  std::span<const int32_t> counts;    // [kv_heads] pages selected
  /// [kv_heads, scored_selections(graph), pages * scores_a_page(graph)], if they were asked for; pages that a step does not have
  /// yet have −infinity.
  std::span<const float> scores;
  /// [kv_heads, words] of flows that select tokens: a bit for each token of the request that is selected.
  std::span<const uint32_t> tokens = {};

  std::span<const uint32_t> tokens_by(int kv_head) const {
    const size_t words = tokens.size() / counts.size();
    return tokens.subspan(static_cast<size_t>(kv_head) * words, words);
  }
  std::span<const int32_t> selected_by(int kv_head) const {
    const size_t pages = selected.size() / counts.size();
    return selected.subspan(static_cast<size_t>(kv_head) * pages, static_cast<size_t>(counts[static_cast<size_t>(kv_head)]));
  }
};

/// One layer of one request on a device, driven as an engine would: K and V of all tokens before the first step are appended,
/// then each step appends its token and attends by the flow.
class LayerReplay {
 public:
  struct Options {
    float scale = 0;  // of q.k; 0: 1/sqrt(dim)
    uint64_t seed = 0;
    bool wants_scores = false;
  };

  /// `plan` is of compile_for_one_layer. All must outlive the replay.
  LayerReplay(Device& device, const LayerTensors& tensors, const Plan& plan, const Options& options);

  /// Runs all steps, once. Throws what the device throws.
  void run(const std::function<void(int step, const LayerStep& result)>& take);

 private:
  /// Calls `attend` within a pass that appends tokens [first, first + count).
  void pass(int first, int count, bool decoding, const std::function<void()>& attend);
  /// Masks of a row, which KV heads have in turn.
  int mask_heads() const;
  void decode(int step);
  /// Under a pattern a step is shown the pages that have a token which it sees, and its own: what was selected of them, or all,
  /// by their positions in the sequence.
  void place_selected(int position);
  /// The numbers of the pages that a step was shown, in each row of `scores_`, and the bits of their tokens go to where these
  /// pages stand in the request.
  void place_scores(const std::vector<int32_t>& pages);
  void place_tokens(const std::vector<int32_t>& pages);
  /// Of the tokens of the request, a bit each.
  int token_words() const { return (pages_ * pool_->layout().page + 31) / 32; }
  static Matrix matrix(const Memory& memory, int64_t rows, int64_t columns);

  Device& device_;
  const LayerTensors& tensors_;
  Options options_;
  int pages_;
  std::unique_ptr<Pool> pool_;
  std::vector<int32_t> page_indices_;
  bool has_selection_;
  std::optional<HeadPatterns> patterns_;
  std::unique_ptr<CompiledFlow> flow_;
  std::unique_ptr<RequestState> state_;
  std::unique_ptr<Memory> keys_;
  std::unique_ptr<Memory> values_;
  std::unique_ptr<Memory> query_;
  std::unique_ptr<Memory> output_memory_;
  std::vector<float> output_;
  std::vector<int32_t> selected_;
  std::vector<int32_t> counts_;
  std::vector<float> scores_;
  std::vector<uint32_t> tokens_;
};

}  // namespace sluice
