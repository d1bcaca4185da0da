#include "agents/repl/timing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/device/batch_builder.h"
#include "kernels/device/open_pass.h"

namespace sluice::repl {

namespace {

constexpr int kRounds = 31;
constexpr int kCallsARound = 16;  // enough that reading the clock costs nothing beside them

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The tokens of one KV head in a pool of their own, and its query.
class HeadOnDevice {
 public:
  HeadOnDevice(Device& device, const Plan& plan, const oracle::Row& row)
      : device_(device),
        geometry_(plan.graph.geometry),
        tokens_(row.tokens),
        pages_(static_cast<size_t>(sluice::pages_for(row.tokens, plan.graph.geometry.page))) {
    std::iota(pages_.begin(), pages_.end(), 0);
    const int pages = static_cast<int>(pages_.size());
    pool_ = device.create_pool(1, 1, pages, plan.layout);
    flow_ = device.compile(plan, 1, 1);
    state_ = flow_->create_state(pages);
    device.reserve({1, 1, pages, geometry_.group, 1, geometry_.head_dim, geometry_.page});
    pool_->write(pages_, row.tokens, row.keys.data(), row.values.data());
    device.refresh_pages(*pool_, 0, {.pages = pages_, .last_tokens = row.tokens - (pages - 1) * geometry_.page}, *flow_);
    query_ = device.allocate(row.query.size_bytes());
    output_ = device.allocate(row.query.size_bytes());
    device.write(query_->data(), row.query.data(), row.query.size_bytes());
  }

  int pages() const { return static_cast<int>(pages_.size()); }

  /// Pages that the flow selects.
  int count_selected() {
    int32_t count = 0;
    AttentionProbe probe;
    probe.counts = &count;
    run(tokens_, true, &probe, 1);
    device_.synchronize();
    return count;
  }

  /// Seconds of one call: with the flow, or dense attention to `tokens`.
  double time(int tokens, bool with_flow) {
    const auto begin = std::chrono::steady_clock::now();
    run(tokens, with_flow, nullptr, kCallsARound);
    device_.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kCallsARound;
  }
  double time_flow() { return time(tokens_, true); }
  double time_dense() { return time(tokens_, false); }
  double time_first(int pages) { return time(std::min(tokens_, pages * geometry_.page), false); }

 private:
  void run(int tokens, bool with_flow, AttentionProbe* probe, int calls) {
    BatchBuilder batch(geometry_.page);
    batch.add({.first = tokens - 1, .decoding = true, .state = state_.get()}, pages_);
    if (const Pattern* const beside = flow_->plan().graph.beside(); beside != nullptr) batch.see_beside(0, *beside);
    const OpenPass open(device_, batch.batch(), *pool_);
    Device::Attention call;
    call.query_heads = geometry_.group;
    call.scale = 1 / std::sqrt(static_cast<float>(geometry_.head_dim));
    call.flow = with_flow ? flow_.get() : nullptr;
    call.probe = probe;
    for (int i = 0; i < calls; ++i) device_.attention(call, row_at(*query_), row_at(*output_));
  }

  Matrix row_at(const Memory& memory) const {
    const int64_t columns = int64_t{geometry_.group} * geometry_.head_dim;
    return {memory.data(), DataType::kF32, 1, columns, columns};
  }

  Device& device_;
  Geometry geometry_;
  int tokens_;
  std::vector<int32_t> pages_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<CompiledFlow> flow_;
  std::unique_ptr<RequestState> state_;
  std::unique_ptr<Memory> query_;
  std::unique_ptr<Memory> output_;
};

}  // namespace

StepTimes time_step(Device& device, const Plan& plan, const oracle::Row& row, const Watch& watch) {
  HeadOnDevice head(device, plan, row);
  StepTimes times;
  times.all_pages = head.pages();
  times.pages = std::max(head.count_selected(), 1);
  std::vector<double> dense;
  std::vector<double> flow;
  std::vector<double> selected;
  for (int round = 0; round < kRounds; ++round) {
    watch.check();
    dense.push_back(head.time_dense());
    flow.push_back(head.time_flow());
    selected.push_back(head.time_first(times.pages));
  }
  times.dense = median(dense);
  times.flow = median(flow);
  times.selected = median(selected);
  return times;
}

}  // namespace sluice::repl
