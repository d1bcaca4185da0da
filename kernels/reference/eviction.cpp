// Who leaves a cache that forgets, one after the other.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference/oracle.h"
#include "kernels/reference/states.h"

namespace sluice::oracle {

std::vector<int32_t> may_leave(const Eviction& eviction, const HeldTokens& held, int first_row, int newest,
                               std::span<const int32_t> last_readers) {
  std::vector<int32_t> slots;
  for (size_t slot = 0; slot < held.positions.size(); ++slot) {
    const int position = held.positions[slot];
    const bool is_first = position < eviction.first;
    const bool is_recent = newest - position < eviction.recent;
    const bool is_read = !last_readers.empty() && last_readers[size_t(position)] >= first_row;
    if (!is_first && !is_recent && !is_read) slots.push_back(int32_t(slot));
  }
  return slots;
}

std::vector<int32_t> leaving(const HeldTokens& held, std::vector<int32_t> candidates, int count) {
  std::vector<int32_t> gone;
  while (int(gone.size()) < count) {
    auto worst = candidates.begin();
    for (auto each = candidates.begin() + 1; each != candidates.end(); ++each) {
      const double score = held.scores[size_t(*each)].value;
      const double lowest = held.scores[size_t(*worst)].value;
      const bool is_older = held.positions[size_t(*each)] < held.positions[size_t(*worst)];
      const bool both_nan = std::isnan(score) && std::isnan(lowest);
      const bool is_equal = both_nan || score == lowest;
      const bool is_lower = (std::isnan(score) && !std::isnan(lowest)) || score < lowest;
      if (is_lower || (is_equal && is_older)) worst = each;
    }
    gone.push_back(*worst);
    candidates.erase(worst);
  }
  std::sort(gone.begin(), gone.end());
  return gone;
}

std::vector<int32_t> closed_up(int held, std::span<const int32_t> gone) {
  const int staying = held - int(gone.size());
  std::vector<int32_t> from(static_cast<size_t>(staying));
  std::iota(from.begin(), from.end(), 0);
  auto gap = gone.begin();
  for (int32_t slot = staying; slot < held; ++slot) {
    if (!std::binary_search(gone.begin(), gone.end(), slot)) from[size_t(*gap++)] = slot;
  }
  return from;
}

void move_tokens(const FlowGraph& graph, std::span<const int32_t> from, int slots, States& states) {
  const int page = graph.geometry.page;
  for (const State& state : graph.states) {
    const int axis = find_axis(state.shape, Axis::kToken);
    if (!has_axis(state.shape, Axis::kPage) || axis < 0) continue;
    const Tensor old = state_for(state, states, std::max(pages_of(graph, slots), 1));
    Tensor moved = filled(old.shape, state.initial);
    size_t inner = 1;
    for (size_t i = size_t(axis) + 1; i < state.shape.size(); ++i) inner *= size_t(state.shape[i].extent);
    const auto of_page = size_t(elements_per_page(state.shape));
    const size_t outer = of_page / (size_t(page) * inner);
    const auto place = [&](int32_t slot, size_t o) {
      return size_t(slot / page) * of_page + (o * size_t(page) + size_t(slot % page)) * inner;
    };
    for (size_t to = 0; to < from.size(); ++to) {
      for (size_t o = 0; o < outer; ++o)
        std::copy_n(old.values.begin() + ptrdiff_t(place(from[to], o)), inner,
                    moved.values.begin() + ptrdiff_t(place(int32_t(to), o)));
    }
    states[state.name] = std::move(moved);
  }
}

}  // namespace sluice::oracle
