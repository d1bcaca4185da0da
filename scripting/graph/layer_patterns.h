#pragma once

#include <map>
#include <vector>

#include "scripting/base/error.h"
#include "scripting/pattern/head_patterns.h"

namespace sluice {

/// Which keys the queries of each layer see, by geometry alone (SAS); a layer without a pattern sees every key up to the query's.
struct LayerPatterns {
  static constexpr int kNone = -1;

  std::vector<HeadPatterns> patterns;  // each once
  int rest = kNone;                    // which of them layers have that are not named
  std::map<int, int> layers;           // by layer index, negative counts from the last: which of them, or kNone
  bool dense_prefill = false;          // the rows of prompts see every key: the patterns are those of decode steps
  SourceLocation where;                // of flow.pattern

  bool empty() const { return patterns.empty(); }
  /// The place in `patterns` of a layer's, of `count` layers; kNone: it has none.
  int place_of(int layer, int count) const;
  /// The place of `pattern`, which is added if it is not there.
  int add(const HeadPatterns& pattern);
  /// Patterns of all layers and heads.
  size_t count() const;

  bool operator==(const LayerPatterns&) const = default;
};

}  // namespace sluice
