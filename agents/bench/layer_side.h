#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agents/bench/layer_content.h"
#include "kernels/device.h"
#include "kernels/device/batch_builder.h"
#include "kernels/reference/judge.h"

namespace sluice {

/// The attention layer of decode steps, dense or with a flow, through the interface of devices alone: a call appends K and V of
/// the new token, refreshes the flow's cached fields, scores, selects and attends. Every sequence stays at its length: each
/// call writes its last token anew. Queries are others from call to call, so that selections are, too.
class LayerSide {
 public:
  /// Where the flow's cached fields lie.
  enum class FieldPlace : uint8_t {
    kBesideTokens,  // in the pages of K and V
    kOwnPages,      // as where engines of several flows share K and V
  };
  /// Without `flow`: dense. Throws FlowError (or InputError) if the device does not take the flow.
  LayerSide(Device& device, const LayerShape& shape, const FlowGraph* flow, FieldPlace place = FieldPlace::kBesideTokens);
  LayerSide(const LayerSide&) = delete;
  LayerSide& operator=(const LayerSide&) = delete;

  /// Gives all sides the same K and V, and computes their fields.
  static void fill(const LayerShape& shape, std::span<const std::unique_ptr<LayerSide>> sides);

  const std::string& name() const { return name_; }
  /// Queues a pass of `shape.calls` calls.
  void queue_pass();

  /// Runs one call and judges it in float64: the outputs of three rows, the scores of one, and of every row that it selected
  /// what its scores ask for. What is wrong, or nothing.
  std::string fault(int layer, int64_t query);
  /// Pages attended by a row (sequence x KV head) in what `fault` saw last: the mean.
  double pages() const { return pages_attended_; }
  DataType kv() const { return layout_.kv; }
  /// Bytes that a call must read: fields of all pages, K and V of the attended ones, and the new token.
  double bytes() const;

 private:
  /// What a call selected, by row.
  struct Selections {
    std::vector<float> scores;      // [sequences, kv_heads, score_rows, scores_of_row]
    size_t score_rows = 0;          // scored_selections of the plan
    size_t scores_of_row = 0;       // pages, each with scores_a_page of the plan
    std::vector<int32_t> selected;  // [sequences, kv_heads, pages]
    std::vector<int32_t> counts;    // [sequences, kv_heads]
    std::vector<uint32_t> tokens;   // [sequences, kv_heads, words] a bit for each that is selected, of flows that select tokens
  };

  Matrix upload(const std::vector<float>& values, int64_t rows);
  std::vector<float> outputs() const;
  void poison_outputs();
  void call(int layer, int64_t query, AttentionProbe* probe);
  Selections probe(int layer, int64_t query);
  std::span<const int32_t> pages_of(int sequence) const;
  static uint64_t seed_of(int sequence) { return static_cast<uint64_t>(sequence) + 1; }
  std::span<const int32_t> selected_by(const Selections& selections, int sequence, int kv_head) const;
  std::vector<int32_t> tokens_by(const Selections& selections, int sequence, int kv_head) const;
  oracle::Observed observed(const Selections& selections, int sequence, int kv_head) const;
  std::string fault_of_selection(const Selections& selections, int sequence, int kv_head) const;
  std::string fault_of_row(const Selections& selections, const std::vector<float>& out, int layer, int64_t query, int sequence,
                           int kv_head, bool with_scores) const;

  Device& device_;
  LayerShape shape_;
  std::string name_ = "dense";
  FlowGraph graph_;  // as traced; empty if dense
  PageLayout layout_;
  int pages_;          // of a sequence
  int64_t calls_ = 0;  // so far
  double pages_attended_ = 0;
  std::vector<int32_t> page_indices_;
  int field_group_ = -1;
  std::vector<int32_t> field_pages_;  // as page_indices_, where fields have pages of their own
  BatchBuilder batch_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<CompiledFlow> flow_;
  std::vector<std::unique_ptr<RequestState>> states_;
  std::vector<std::unique_ptr<Memory>> memory_;
  Matrix queries_;        // [kQuerySets * sequences, query_heads * dim]
  Matrix keys_, values_;  // [sequences, kv_heads * dim] of the new token
  Matrix outputs_;        // [sequences, query_heads * dim]
};

}  // namespace sluice
