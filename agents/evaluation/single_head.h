#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/open_pass.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// What a device gives for one decode step.
struct HeadStep {
  std::vector<float> scores;      // [scored_selections(plan.graph), pages]
  std::vector<int32_t> selected;  // ascending; all pages where the flow selects nothing
  std::vector<float> output;      // [group, dim]
};

/// One layer, one KV head and one request on a device, driven as an engine drives it.
class SingleHead {
 public:
  SingleHead(Device& device, const Plan& plan, int max_tokens, uint64_t seed);

  /// Appends tokens of k, v [tokens, dim] without a query.
  void prefill(const std::vector<float>& keys, const std::vector<float>& values);
  /// Appends one token and attends with q [group, dim]. `probed`: reports scores and what is selected; else the output alone, by
  /// the kernels that serve requests.
  HeadStep decode(const std::vector<float>& key, const std::vector<float>& value, const std::vector<float>& query,
                  bool probed = true);

 private:
  /// A pass that appends `rows` tokens.
  OpenPass begin(int rows, bool decoding);
  void append(const std::vector<float>& keys, const std::vector<float>& values);
  Matrix upload(const std::vector<float>& values, int64_t rows);

  Device& device_;
  const Plan& plan_;
  int tokens_ = 0;
  uint64_t seed_;
  size_t score_rows_ = 0;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<CompiledFlow> flow_;  // null: every layer is dense
  std::unique_ptr<RequestState> state_;
  std::vector<std::unique_ptr<Memory>> uploads_;  // of the pass
  std::vector<int32_t> pages_;
  // What a PassBatch points to.
  std::vector<int32_t> query_indptr_;
  std::vector<int32_t> lengths_;
  std::vector<int32_t> page_indptr_;
  std::vector<uint8_t> decoding_;
  std::vector<uint64_t> seeds_;
  std::vector<RequestState*> states_;
};

}  // namespace sluice
