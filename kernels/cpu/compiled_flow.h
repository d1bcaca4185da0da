#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/flow.h"

namespace sluice::cpu {

class DeviceFlow;

/// The flows of a device that are alive.
struct FlowRegistry {
  std::vector<const DeviceFlow*> flows;
};

/// A flow together with the scratch that each thread of a device needs to run it.
class DeviceFlow final : public CompiledFlow {
 public:
  DeviceFlow(std::unique_ptr<Flow> flow, int threads, std::shared_ptr<FlowRegistry> registry)
      : flow_(std::move(flow)), registry_(std::move(registry)), scratch_(threads), selected_(threads) {
    registry_->flows.push_back(this);
  }
  ~DeviceFlow() override { std::erase(registry_->flows, this); }
  DeviceFlow(const DeviceFlow&) = delete;
  DeviceFlow& operator=(const DeviceFlow&) = delete;

  const Plan& plan() const override { return flow_->plan(); }
  std::unique_ptr<RequestState> create_state(int max_pages) const override { return flow_->create_state(max_pages); }

  FlowCounters counters() const override { return counters_; }

  /// Counts a row that attends to `attended` of `available` pages. Counters, like scratch, are no part of what the flow means.
  void count(int attended, int available) const {
    counters_.pages_attended += static_cast<uint64_t>(attended);
    counters_.pages_available += static_cast<uint64_t>(available);
  }

  const Flow& flow() const { return *flow_; }
  FlowScratch& scratch(int thread) const { return *scratch_[thread]; }
  /// Room for positions and, behind them, for page ids: max_pages entries each.
  int32_t* selected(int thread) const { return selected_[thread].data(); }
  int max_pages() const { return max_pages_; }

  /// Makes room for requests of `pages` pages. Scratch is no part of what the flow means, so this is const.
  void ensure(int pages) const {
    if (pages <= max_pages_) return;
    for (size_t i = 0; i < scratch_.size(); ++i) {
      scratch_[i] = flow_->create_scratch(pages);
      selected_[i].resize(2 * static_cast<size_t>(pages));
    }
    max_pages_ = pages;
  }

 private:
  std::unique_ptr<Flow> flow_;
  std::shared_ptr<FlowRegistry> registry_;
  mutable int max_pages_ = 0;
  mutable FlowCounters counters_;
  mutable std::vector<std::unique_ptr<FlowScratch>> scratch_;
  mutable std::vector<std::vector<int32_t>> selected_;
};

}  // namespace sluice::cpu
