#include "kernels/cpu/flow/state.h"

#include <algorithm>
#include <string>

#include "kernels/cpu/flow/kernels.h"
#include "scripting/base/error.h"

namespace sluice::cpu::flows {

FlowState::FlowState(const FlowGraph& graph, int layers, int kv_heads, int max_pages)
    : kv_heads_(kv_heads), max_pages_(max_pages) {
  for (const State& state : graph.states) {
    Entry entry;
    entry.paged = has_axis(state.shape, Axis::kPage);
    entry.elements = elements_per_page(state.shape);
    entry.initial = static_cast<float>(state.initial);
    entry.offset = block_floats_;
    const int token = find_axis(state.shape, Axis::kToken);
    if (entry.paged && token >= 0) {
      entry.tokens = state.shape[token].extent;
      entry.token_inner = 1;
      for (size_t i = static_cast<size_t>(token) + 1; i < state.shape.size(); ++i) entry.token_inner *= state.shape[i].extent;
    }
    block_floats_ += entry.elements * (entry.paged ? max_pages : 1) + kPadding;
    entries_.push_back(entry);
  }
  int sparse = 0;
  for (int layer = 0; layer < layers; ++layer) layer_blocks_.push_back(graph.layers.is_sparse(layer, layers) ? sparse++ : -1);
  blocks_ = int64_t{sparse} * kv_heads;
  values_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(blocks_ * block_floats_));
  seen_.resize(static_cast<size_t>(blocks_) * entries_.size());
  if (graph.reads_mass() && graph.mass_rows > 0) {
    mass_floats_ = int64_t{graph.geometry.page} * graph.geometry.group;
    sums_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(blocks_ * max_pages * mass_floats_));
    summed_.resize(static_cast<size_t>(blocks_));
  }
  if (graph.eviction) {
    slots_ = int64_t{max_pages} * graph.geometry.page;
    positions_.resize(static_cast<size_t>(blocks_ * slots_));
  }
  reset();
}

size_t FlowState::bytes() const {
  return static_cast<size_t>(blocks_ * (block_floats_ + max_pages_ * mass_floats_)) * sizeof(float) +
         (seen_.size() + summed_.size() + positions_.size()) * sizeof(int32_t);
}

void FlowState::reset() {
  std::fill(seen_.begin(), seen_.end(), 0);
  std::fill(summed_.begin(), summed_.end(), 0);
  for (int64_t block = 0; block < blocks_; ++block) {
    for (const Entry& entry : entries_) {
      if (!entry.paged) std::fill_n(values_.get() + block * block_floats_ + entry.offset, entry.elements, entry.initial);
    }
  }
}

int64_t FlowState::block_of(int layer, int kv_head) const {
  if (layer < 0 || layer >= static_cast<int>(layer_blocks_.size()) || layer_blocks_[layer] < 0 || kv_head < 0 ||
      kv_head >= kv_heads_) {
    throw InternalError("flow state: there is none for layer " + std::to_string(layer) + ", KV head " + std::to_string(kv_head));
  }
  return int64_t{layer_blocks_[layer]} * kv_heads_ + kv_head;
}

float* FlowState::prompt_masses(int layer, int kv_head, int pages) {
  if (mass_floats_ == 0) return nullptr;
  if (pages > max_pages_)
    throw InternalError("flow state: " + std::to_string(pages) + " pages, made for " + std::to_string(max_pages_));
  const auto block = static_cast<size_t>(block_of(layer, kv_head));
  float* sums = sums_.get() + static_cast<int64_t>(block) * max_pages_ * mass_floats_;
  if (pages > summed_[block]) {
    std::fill(sums + summed_[block] * mass_floats_, sums + pages * mass_floats_, 0.0F);
    summed_[block] = pages;
  }
  return sums;
}

void FlowState::forget_prompt_masses(int layer, int kv_head) {
  if (mass_floats_ > 0) summed_[static_cast<size_t>(block_of(layer, kv_head))] = 0;
}

std::span<int32_t> FlowState::positions(int layer, int kv_head) {
  return std::span(positions_).subspan(static_cast<size_t>(block_of(layer, kv_head) * slots_), static_cast<size_t>(slots_));
}

void FlowState::move_tokens(int layer, int kv_head, std::span<const SlotMove> moves, int staying) {
  const std::span<int32_t> positions = this->positions(layer, kv_head);
  for (const SlotMove& move : moves) positions[static_cast<size_t>(move.to)] = positions[static_cast<size_t>(move.from)];
  const int64_t block = block_of(layer, kv_head);
  for (size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (entry.token_inner == 0) continue;
    float* const values = values_.get() + block * block_floats_ + entry.offset;
    for (int64_t part = 0; part < entry.elements; part += entry.tokens * entry.token_inner) {
      for (const SlotMove& move : moves) {
        std::copy_n(values + part + entry.place_of(move.from), entry.token_inner, values + part + entry.place_of(move.to));
      }
    }
    int32_t& seen = seen_[static_cast<size_t>(block) * entries_.size() + index];
    const auto pages = static_cast<int32_t>((staying + entry.tokens - 1) / entry.tokens);
    if (seen < pages) continue;  // nothing was kept of the last ones
    seen = pages;
    if (staying % entry.tokens != 0)
      initialise_future_tokens(entry, values + (pages - 1) * entry.elements, static_cast<int>(staying % entry.tokens));
  }
}

float* FlowState::load(int layer, int kv_head, int index, int pages) {
  const int64_t block = block_of(layer, kv_head);
  const Entry& entry = entries_[index];
  float* values = values_.get() + block * block_floats_ + entry.offset;
  if (!entry.paged) return values;
  if (pages > max_pages_)
    throw InternalError("flow state: " + std::to_string(pages) + " pages, made for " + std::to_string(max_pages_));
  const int64_t seen = std::min(seen_[block * entries_.size() + index], pages);
  std::fill(values + seen * entry.elements, values + pages * entry.elements, entry.initial);
  return values;
}

void FlowState::save(int layer, int kv_head, int index, const float* values, int pages, int tokens) {
  const int64_t block = block_of(layer, kv_head);
  const Entry& entry = entries_[index];
  float* kept = values_.get() + block * block_floats_ + entry.offset;
  const bool is_there = values == kept;  // a state saved as it was loaded
  if (!entry.paged) {
    if (!is_there) std::copy_n(values, entry.elements, kept);
    return;
  }
  if (pages > max_pages_)
    throw InternalError("flow state: " + std::to_string(pages) + " pages, made for " + std::to_string(max_pages_));
  if (!is_there) std::copy_n(values, pages * entry.elements, kept);
  if (entry.token_inner > 0) initialise_future_tokens(entry, kept + (pages - 1) * entry.elements, tokens);
  seen_[block * entries_.size() + index] = pages;
}

int FlowState::saved_pages(int layer, int kv_head, int index) const {
  return seen_[static_cast<size_t>(block_of(layer, kv_head)) * entries_.size() + static_cast<size_t>(index)];
}

void FlowState::save_leaving(int layer, int kv_head, int index, const float* values, int pages) {
  const int64_t block = block_of(layer, kv_head);
  const Entry& entry = entries_[index];
  int32_t& saved = seen_[block * entries_.size() + index];
  if (pages <= saved) return;
  if (pages > max_pages_)
    throw InternalError("flow state: " + std::to_string(pages) + " pages, made for " + std::to_string(max_pages_));
  float* const kept = values_.get() + block * block_floats_ + entry.offset;
  const int64_t first = saved * entry.elements;
  if (values != kept) std::copy_n(values + first, pages * entry.elements - first, kept + first);
  saved = pages;
}

void FlowState::initialise_future_tokens(const Entry& entry, float* page, int tokens) const {
  const int64_t stride = entry.tokens * entry.token_inner;
  for (int64_t start = 0; start < entry.elements; start += stride) {
    for (int64_t token = tokens; token < entry.tokens; ++token) {
      std::fill_n(page + start + token * entry.token_inner, entry.token_inner, entry.initial);
    }
  }
}

}  // namespace sluice::cpu::flows
