#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/bench/segment_texts.h"
#include "host/transformer/model.h"
#include "kernels/device/recompute_rule.h"

namespace sluice {

/// Many requests at once whose prompts have documents in common, each in another order, by a rule and by an engine that knows no
/// segments, which has the same prompts: until the last has its answer. Then how long those who decode wait for a step at most
/// while somebody's text is frozen, beside the longest step without that.
void add_requests_together(Device& device, const Model& model, const SegmentLayout& layout, const BenchOptions& options,
                           const std::string& name, const std::shared_ptr<const RecomputeRule>& rule,
                           std::vector<BenchRow>& rows);

}  // namespace sluice
