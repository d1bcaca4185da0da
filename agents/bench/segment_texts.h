#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "agents/bench/bench.h"
#include "host/serving/engine.h"
#include "scripting/base/error.h"

namespace sluice {

inline constexpr int kSegmentPage = 16;  // tokens

/// Where the text of a prompt comes from.
struct SegmentLayout {
  int segments = 0;
  int segment = 0;  // tokens of each
  int tokens = 0;   // of the prompt

  /// Of the prompt's own text, before the segment of this number, or behind all.
  int own(int place) const {
    const int all = tokens - segments * segment;
    return all / (segments + 1) + (place < all % (segments + 1) ? 1 : 0);
  }
};

inline SegmentLayout segment_layout_of(const BenchOptions& options) {
  const int asked = static_cast<int>(std::lround(options.reused * options.tokens / options.segment));
  const int segments = std::min(asked, (options.tokens - 1) / (options.segment + 1));  // with a token between any two
  const SegmentLayout layout{segments, options.segment, options.tokens};
  if (segments < 1) {
    throw InputError(
        fmt::format("{} tokens of which {} are segments of {}: there are none", options.tokens, options.reused, options.segment),
        "lower --segment, or raise --reused");
  }
  return layout;
}

/// Prompts that have segments in common.
class SegmentTexts {
 public:
  /// `documents`: segments that there are, of which a prompt has as many as the layout says.
  SegmentTexts(const ModelConfig& config, const SegmentLayout& layout, int documents) : config_(config), layout_(layout) {
    for (int i = 0; i < documents; ++i) segments_.push_back(drawn(layout.segment));
  }

  /// That have each segment in another place, so that they are known.
  std::vector<Request> known() {
    std::vector<Request> requests;
    for (const std::vector<int32_t>& segment : segments_) {
      constexpr int kBefore = 37;
      Request& request = requests.emplace_back(asked(drawn(kBefore)));
      add(request, segment);
      append(request, drawn(2 * kSegmentPage));  // the page with its last tokens is full
    }
    return requests;
  }

  /// A prompt with new text of its own, and segments in another order than they were known in: the last one first, or as chance
  /// has it where there are more than it takes.
  Request prompt() {
    Request request = asked({});
    std::vector<size_t> order(segments_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
    if (static_cast<int>(order.size()) > layout_.segments) std::shuffle(order.begin(), order.end(), random_);
    for (int i = 0; i < layout_.segments; ++i) {
      append(request, drawn(layout_.own(i)));
      add(request, segments_[order[static_cast<size_t>(i)]]);
    }
    append(request, drawn(layout_.own(layout_.segments)));
    return request;
  }

  std::vector<int32_t> drawn(int tokens) {
    std::vector<int32_t> text;
    for (int i = 0; i < tokens; ++i) text.push_back(static_cast<int32_t>(random_() % static_cast<unsigned>(config_.vocabulary)));
    return text;
  }

 private:
  static Request asked(std::vector<int32_t> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.likely = 0;
    return request;
  }
  static void append(Request& request, const std::vector<int32_t>& text) {
    request.prompt.insert(request.prompt.end(), text.begin(), text.end());
  }
  static void add(Request& request, const std::vector<int32_t>& segment) {
    const auto first = static_cast<int>(request.prompt.size());
    append(request, segment);
    request.segments.push_back({first, static_cast<int>(request.prompt.size()), "bench"});
  }
  const ModelConfig& config_;
  const SegmentLayout layout_;
  std::mt19937 random_{7};
  std::vector<std::vector<int32_t>> segments_;
};

}  // namespace sluice
