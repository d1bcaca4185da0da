#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agents/generation/flow_engine.h"
#include "agents/generation/metrics.h"
#include "host/serving/engine.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// An engine of the engine's thread, which gives it one pass after the other.
class EngineSlot final : public FlowEngine {
 public:
  EngineSlot(Device& device, const Model& model, std::string flow, std::shared_ptr<const Plan> plan, const EngineOptions& options,
             GenerationMetrics& metrics);

  const std::string& flow() const override { return flow_; }
  bool busy() const override { return !live_.empty(); }
  GenerationClock::time_point last_used() const override { return last_used_; }
  EngineStats stats() const override { return engine_->stats(); }
  std::vector<FrozenText> frozen_texts() override { return engine_->frozen_texts(); }
  bool keeps_texts() const override { return engine_->keeps_texts(); }
  bool thaw(uint64_t id) override { return engine_->thaw(id); }
  bool runs_itself() const override { return false; }
  void submit(LiveTask& live) override;
  bool cancel(uint64_t id, bool stopped) override;
  bool step() override;
  int fail_all(int status, const std::string& message) override;
  int take_ended() override { return std::exchange(ended_, 0); }
  /// Whether the task is here and has not ended.
  bool has(uint64_t id) const;

 private:
  void token(LiveTask& live, uint64_t id, const GeneratedToken& generated);
  void finish(const RequestResult& result);

  const std::string flow_;
  const std::shared_ptr<const Plan> plan_;  // null: dense. The engine refers to it
  GenerationMetrics& metrics_;
  std::unordered_map<uint64_t, LiveTask> live_;  // by the engine's id
  GenerationClock::time_point last_used_ = GenerationClock::now();
  int ended_ = 0;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice
