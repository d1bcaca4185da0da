#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "scripting/graph/recompute.h"

namespace sluice {

/// A rule which says what of copied tokens is computed again, ready to run. It runs on the host, whatever the device: once a
/// prompt, over a few numbers a token. Several threads may use one.
class RecomputeRule {
 public:
  virtual ~RecomputeRule() = default;

  virtual const Recompute& rule() const = 0;
  /// Whether the choice depends on a fact.
  virtual bool reads(CopyFact fact) const = 0;
  /// Whether it depends on one of a layer, or on one by query head.
  bool reads_layer() const;
  bool reads_heads() const;
  /// Whether of facts by query head it reads but the sums over all heads.
  virtual bool sums_heads() const = 0;
  /// That `select` takes for so many blocks, about.
  virtual size_t bytes(int blocks) const = 0;

  /// Fills the numbers of one fact of the blocks, [blocks, page] or [blocks, page, heads]; where the rule sums heads, the sums.
  using Fill = std::function<void(CopyFact fact, std::span<float> numbers)>;
  /// The tokens that are computed again, of `blocks` copied blocks that lie one behind the other: ascending. `fill` is called for
  /// every fact that is read, last for those that a layer has to say, which a device may still be computing. `seed`: of
  /// sluice.random. Of kSelected alone.
  virtual std::vector<int32_t> select(int blocks, uint64_t seed, const Fill& fill) const = 0;
};

/// Throws FlowError if the rule cannot run.
std::shared_ptr<const RecomputeRule> make_recompute_rule(std::shared_ptr<const Recompute> rule);

}  // namespace sluice
