#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agents/evaluation/step_timing.h"
#include "host/serving/engine.h"

namespace sluice {

/// What the engines of one benchmark have in common.
struct ServeSetup {
  Device& device;
  const ModelConfig& config;
  const Model* model;  // null until its weights are there
  int batch;           // sequences that run at once
  int tokens;          // of each prompt
  int generate;        // most tokens of each answer that are asked for, what begins beside prefills of others left out
  int chunk;           // rows of a pass at most
  /// Each sequence computes a prompt of its own; otherwise they share all of it but the last token, and start from a snapshot.
  bool own_prompts;
  /// Prompts have a last token of their own beyond `tokens`, which is all that is left to compute.
  bool disaggregated = false;

  std::vector<int32_t> prompt_of(int sequence) const;
  /// Most tokens that a sequence generates. Those whose prompts are computed first decode while others are being computed.
  int most_generated() const;
  EngineOptions options(const Plan* plan, int sequences) const;
  /// Bytes of the pool of `options`.
  double pool_bytes(const Plan* plan, int sequences) const;
  /// Bytes of an engine's activations and logits, about.
  double scratch_bytes() const;
  /// Bytes of the model's weights in bf16, about.
  double weight_bytes() const;
};

/// An engine in which every sequence decodes.
class ServeSide {
 public:
  static constexpr int kWarmPasses = 3;    // the first ones touch fresh memory
  static constexpr int kStepsPerTurn = 4;  // decode steps of one side that are timed before it is the other's turn
  static constexpr int kPassesPerTurn = kStepsPerTurn + kUntimedPasses;

  /// Brings all sequences to their first decode steps: from `snapshot`, or by computing their prompts.
  ServeSide(const ServeSetup& setup, const Plan* plan, const std::shared_ptr<const KvSnapshot>& snapshot);

  /// Seconds of kStepsPerTurn decode steps, as they follow each other.
  double turn();
  /// So many decode passes, at least 2, and no other.
  void run(int passes);

  EngineStats stats() const { return engine_.stats(); }
  /// Generated so far.
  const std::vector<int32_t>& tokens(int sequence) const { return tokens_[static_cast<size_t>(sequence)]; }
  DataType kv() const { return kv_; }
  double pool() const { return pool_bytes_; }
  /// What the process grew by for this side, beyond the pages that it uses.
  double resident_overhead() const { return resident_overhead_; }

 private:
  DataType kv_;
  double pool_bytes_;
  double resident_overhead_ = 0;
  std::vector<std::vector<int32_t>> tokens_;
  Engine engine_;
};

}  // namespace sluice
