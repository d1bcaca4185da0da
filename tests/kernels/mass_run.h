#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/flow/state.h"
#include "kernels/device.h"
#include "kernels/device/batch_builder.h"
#include "kernels/device/open_pass.h"
#include "kernels/reference/oracle.h"
#include "scripting/lua/trace.h"
#include "tests/support/head_cache.h"

namespace sluice::testing {

/// One layer with two KV heads, and a request whose flow keeps states after attention has run. The reference goes the
/// same way.
class MassRun {
 public:
  static constexpr int kHeads = 2;

  MassRun(Device& device, const FlowGraph& graph, int tokens, uint64_t seed = 1)
      : device_(device),
        graph_(graph),
        plan_(compile(graph).plan),
        flow_(device.compile(plan_, 1, kHeads)),
        pages_(2 * pages_for(tokens, graph.geometry.page)),
        tokens_(tokens),
        batch_(graph.geometry.page) {
    std::mt19937_64 random(seed);
    const auto rows = static_cast<size_t>(tokens);
    const auto dim = static_cast<size_t>(graph.geometry.head_dim);
    keys_ = random_numbers(rows * kHeads * dim, random);
    values_ = random_numbers(rows * kHeads * dim, random);
    queries_ = random_numbers(rows * kHeads * static_cast<size_t>(graph.geometry.group) * dim, random);
    // The request's pages lie among those of a companion, in falling order.
    pool_ = device.create_pool(1, kHeads, static_cast<int>(pages_.size()), plan_.layout);
    std::iota(pages_.rbegin(), pages_.rend(), 0);
    state_ = flow_->create_state(static_cast<int>(pages_.size()) / 2);
    companion_state_ = flow_->create_state(static_cast<int>(pages_.size()) / 2);
  }

  /// The rows of a prompt in chunks, each beside as many rows of a companion if `with_companion`.
  void prefill(int rows, std::span<const int> chunks, bool with_companion = false) {
    for (int first = 0, i = 0; first < rows; ++i) {
      const int count = std::min(chunks[static_cast<size_t>(i) % chunks.size()], rows - first);
      run(first, count, rows, with_companion ? count : 0, false);
      first += count;
    }
    for (int head = 0; head < kHeads; ++head) oracle::end_prompt(graph_, prompt(head, rows), scale(), states_[head]);
  }
  /// The decode step of the token at a position.
  void decode(int at, bool with_companion = false) {
    run(at, 1, 0, with_companion ? 1 : 0, true);
    for (int head = 0; head < kHeads; ++head) {
      const HeadNumbers numbers = numbers_of(head, at + 1);
      const size_t of_row = static_cast<size_t>(graph_.geometry.group) * static_cast<size_t>(graph_.geometry.head_dim);
      const oracle::Row row{std::span(numbers.queries).last(of_row), numbers.keys, numbers.values, at + 1, kSeed, 0, head};
      const oracle::Result result = oracle::run(graph_, row, states_[head]);
      oracle::end_step(graph_, row, result, scale(), states_[head]);
    }
  }

  /// What the device keeps as a state of a KV head, for as many pages as `tokens` tokens take.
  std::vector<float> kept(const std::string& name, int head, int tokens) {
    for (size_t i = 0; i < plan_.graph.states.size(); ++i) {
      const State& state = plan_.graph.states[i];
      if (state.name != name) continue;
      const int pages = pages_for(tokens, graph_.geometry.page);
      const float* const values = dynamic_cast<cpu::flows::FlowState&>(*state_).load(0, head, static_cast<int>(i), pages);
      return {values, values + elements_per_page(state.shape) * (has_axis(state.shape, Axis::kPage) ? pages : 1)};
    }
    return {};
  }
  const Plan& plan() const { return plan_; }
  const RequestState& state() const { return *state_; }
  /// What the reference does.
  const oracle::Tensor& expected(const std::string& name, int head) { return states_[head][name]; }
  /// The rows of a prompt, as the reference takes them; refers to this object until the next call for the head.
  oracle::Prompt prompt(int head, int rows) {
    numbers_[head] = numbers_of(head, rows);
    return {.queries = numbers_[head].queries,
            .keys = numbers_[head].keys,
            .values = numbers_[head].values,
            .pattern = pattern_ ? &*pattern_ : nullptr,
            .pages_shown = shown_,
            .seed = kSeed,
            .layer = 0,
            .kv_head = head};
  }
  /// Prompts are computed under it; the after stage is shown `pages`.
  void set_pattern(const Pattern& pattern, std::vector<int32_t> pages) {
    pattern_ = pattern;
    shown_ = std::move(pages);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(graph_.geometry.head_dim)); }

 private:
  static constexpr uint64_t kSeed = 7;

  struct HeadNumbers {
    std::vector<float> keys, values, queries;
  };

  HeadNumbers numbers_of(int head, int rows) const {
    HeadNumbers numbers;
    const auto take = [&](const std::vector<float>& all, std::vector<float>& own) {
      const size_t of_row = all.size() / static_cast<size_t>(tokens_);
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        const auto from = all.begin() + static_cast<ptrdiff_t>(row * of_row + static_cast<size_t>(head) * of_row / kHeads);
        own.insert(own.end(), from, from + static_cast<ptrdiff_t>(of_row / kHeads));
      }
    };
    take(keys_, numbers.keys);
    take(values_, numbers.values);
    take(queries_, numbers.queries);
    return numbers;
  }

  /// Rows of the companion, then those of the request.
  std::vector<float> rows_of(const std::vector<float>& all, int first, int rows, int companion_rows) const {
    const size_t of_row = all.size() / static_cast<size_t>(tokens_);
    std::vector<float> some(all.rbegin(), all.rbegin() + static_cast<ptrdiff_t>(of_row * static_cast<size_t>(companion_rows)));
    const auto from = all.begin() + static_cast<ptrdiff_t>(of_row * static_cast<size_t>(first));
    some.insert(some.end(), from, from + static_cast<ptrdiff_t>(of_row * static_cast<size_t>(rows)));
    return some;
  }

  void add(int first, int rows, int prompt_rows, bool decoding, RequestState* state, std::span<const int32_t> pages) {
    batch_.add({.first = first, .rows = rows, .decoding = decoding, .seed = kSeed, .state = state, .prompt_rows = prompt_rows});
    if (decoding || !pattern_) {
      batch_.keep(0, pages);
      if (graph_.beside() != nullptr && decoding) batch_.see_beside(0, *graph_.beside());
      return;
    }
    std::vector<int32_t> slots(static_cast<size_t>(rows));
    std::iota(slots.begin(), slots.end(), first);
    const std::span<uint32_t> masks = batch_.keep_slots(0, pages, first + rows, slots);
    const auto words = static_cast<size_t>((first + rows + 31) / 32);
    for (int r = 0; r < rows; ++r) {
      pattern_->row(first + r, first + rows, masks.subspan(static_cast<size_t>(r) * words, words));
    }
  }

  void run(int first, int rows, int prompt_rows, int companion_rows, bool decoding) {
    batch_.clear();
    const std::span<const int32_t> pages(pages_);
    if (companion_rows > 0) {
      add(first, companion_rows, prompt_rows, decoding, companion_state_.get(), pages.subspan(pages.size() / 2));
    }
    add(first, rows, prompt_rows, decoding, state_.get(), pages.first(pages.size() / 2));
    const std::vector<float> keys = rows_of(keys_, first, rows, companion_rows);
    const std::vector<float> values = rows_of(values_, first, rows, companion_rows);
    const std::vector<float> queries = rows_of(queries_, first, rows, companion_rows);
    const std::vector<float> out(queries.size());
    std::vector<std::unique_ptr<Memory>> uploads;
    const auto matrix = [&](const std::vector<float>& numbers) {
      uploads.push_back(device_.allocate(numbers.size() * sizeof(float)));
      device_.write(uploads.back()->data(), numbers.data(), numbers.size() * sizeof(float));
      const auto columns = static_cast<int64_t>(numbers.size()) / batch_.rows();
      return Matrix{uploads.back()->data(), DataType::kF32, batch_.rows(), columns, columns};
    };
    {
      const OpenPass pass(device_, batch_.batch(), *pool_);
      device_.append(0, matrix(keys), matrix(values));
      device_.refresh_fields(0, *flow_);
      device_.attention(
          {.query_heads = kHeads * graph_.geometry.group, .scale = static_cast<float>(scale()), .flow = flow_.get()},
          matrix(queries), matrix(out));
    }
    device_.synchronize();
  }

  Device& device_;
  FlowGraph graph_;
  Plan plan_;
  std::unique_ptr<CompiledFlow> flow_;
  std::vector<int32_t> pages_;
  int tokens_;
  std::vector<float> keys_, values_, queries_;  // [tokens, heads, ...]
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<RequestState> state_, companion_state_;
  BatchBuilder batch_;
  std::optional<Pattern> pattern_;
  std::vector<int32_t> shown_;
  HeadNumbers numbers_[kHeads];
  oracle::States states_[kHeads];
};

}  // namespace sluice::testing
