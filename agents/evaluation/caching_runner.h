#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/runner.h"

namespace sluice {

/// A runner that keeps what dense attention did for flows that are asked the same samples later: K and V of prompts, and its
/// answers. The least recently used go when they take more than so many bytes. Speed is never remembered: flow and dense
/// attention are timed in turn, every time.
class CachingRunner final : public Runner {
 public:
  /// `inner` must outlive this.
  CachingRunner(Runner& inner, size_t bytes) : inner_(inner), most_bytes_(bytes) {}

  void announce(std::span<const FlowScript> scripts) override { inner_.announce(scripts); }
  Candidate prepare(const FlowScript& script) override { return inner_.prepare(script); }
  std::optional<std::string> check_numerically(const Candidate& candidate) override {
    return inner_.check_numerically(candidate);
  }
  std::optional<TraceResult> judge_on_traces(const FlowScript& script, const Candidate& candidate) override {
    return inner_.judge_on_traces(script, candidate);
  }
  int batch_size(int tokens) const override { return inner_.batch_size(tokens); }
  std::unique_ptr<PrefilledBatch> prefill(const std::vector<JobDocument>& documents) override;
  std::vector<Generation> decode(const PrefilledBatch& batch, const Plan* plan) override;
  TaskSpeed measure(const PrefilledBatch& batch, const Plan& plan, const Answers& answers, const SpeedOptions& options) override;

  /// Of batches that are kept.
  size_t bytes() const { return bytes_; }

 private:
  struct Kept {
    std::unique_ptr<PrefilledBatch> batch;
    std::optional<std::vector<Generation>> dense;  // its answers
  };
  class Handle;
  using Key = std::string;

  static const Handle& handle_of(const PrefilledBatch& batch);
  void make_room();

  Runner& inner_;
  size_t most_bytes_;
  size_t bytes_ = 0;
  std::map<Key, std::shared_ptr<Kept>> kept_;
  std::list<Key> by_use_;  // the most recent first
};

}  // namespace sluice
