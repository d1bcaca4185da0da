#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/flow/flow.h"

namespace sluice::cpu {

class DeviceFlow;

/// The flows of a device that are alive.
struct FlowRegistry {
  std::vector<const DeviceFlow*> flows;
};

/// Most that the scratch of one flow may take on all threads together. A flow that wants more runs on fewer threads, so that its
/// memory, and with it its verdict, does not depend on how many cores a machine has. One thread may take more, and while it grows
/// there is the old one.
inline constexpr size_t kMostScratchBytes = size_t{256} << 20;

/// A flow together with the scratch of the threads of a device that run it.
class DeviceFlow final : public CompiledFlow {
 public:
  DeviceFlow(std::unique_ptr<Flow> flow, int threads, std::shared_ptr<FlowRegistry> registry)
      : flow_(std::move(flow)), registry_(std::move(registry)), device_threads_(threads) {
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
  /// Threads of the device that may run the flow, those before it: 1..threads of the device.
  int threads() const { return static_cast<int>(room_.size()); }
  FlowScratch& scratch(int thread) const { return *room_[thread].scratch; }
  /// Room for positions and, behind them, for page ids: max_pages entries each.
  int32_t* selected(int thread) const { return room_[thread].selected.data(); }
  /// Room for a bit for each token of max_pages pages.
  std::span<uint32_t> mask(int thread) const { return room_[thread].mask; }
  /// Room for what attention gives each token of max_pages pages, [pages, page, group], of flows that read it; else null.
  float* masses(int thread) const { return room_[thread].masses.empty() ? nullptr : room_[thread].masses.data(); }
  int max_pages() const { return max_pages_; }

  /// Makes room for requests of `pages` pages. Scratch is no part of what the flow means, so this is const.
  void ensure(int pages) const {
    if (pages <= max_pages_) return;
    std::vector<Room> room;  // what there is stays if memory does not suffice
    room.push_back(make_room(pages));
    const size_t threads = std::clamp<size_t>(kMostScratchBytes / room.front().bytes(), 1, device_threads_);
    while (room.size() < threads) room.push_back(make_room(pages));
    room_ = std::move(room);
    max_pages_ = pages;
  }

 private:
  /// What one thread needs.
  struct Room {
    std::unique_ptr<FlowScratch> scratch;
    std::vector<int32_t> selected;
    std::vector<uint32_t> mask;  // of flows that see parts of pages
    std::vector<float> masses;   // of flows that read them

    size_t bytes() const { return scratch->bytes() + (selected.size() + mask.size() + masses.size()) * sizeof(int32_t); }
  };

  Room make_room(int pages) const {
    const size_t tokens = !plan().graph.selects_under_masks() ? 0 : static_cast<size_t>(pages) * plan().layout.page;
    const FlowGraph& graph = plan().graph;
    const size_t masses = graph.reads_mass() ? static_cast<size_t>(pages) * graph.geometry.page * graph.geometry.group : 0;
    return {flow_->create_scratch(pages), std::vector<int32_t>(2 * static_cast<size_t>(pages)),
            std::vector<uint32_t>((tokens + 31) / 32), std::vector<float>(masses)};
  }

  std::unique_ptr<Flow> flow_;
  std::shared_ptr<FlowRegistry> registry_;
  mutable int max_pages_ = 0;
  mutable FlowCounters counters_;
  int device_threads_;
  mutable std::vector<Room> room_;
};

}  // namespace sluice::cpu
