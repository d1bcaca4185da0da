// What attention gives tokens, for the after stage of a flow: of decode steps from the logits that they had in hand, of prompts
// by a second pass over K.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/attention/attend.h"
#include "kernels/device/shown_pages.h"

namespace sluice::cpu {

void Attend::end_step(const FlowRow& row, std::span<const int32_t> positions, int last_tokens, const float* log_sums,
                      int thread) {
  float* const masses = flow_->masses(thread);
  if (masses != nullptr && flow_->plan().attend.is_plain()) {
    spread_logits(positions, row.pages(), last_tokens, masses);
    const auto group = static_cast<size_t>(group_);
    weigh_tokens({masses, row.tokens.pages.size() * static_cast<size_t>(layer_->layout.page) * group}, {log_sums, group});
  }
  flow_->flow().run_after(row, Ending::kStep, masses, flow_->scratch(thread));
}

void Attend::spread_logits(std::span<const int32_t> positions, int pages, int last_tokens, float* logits) const {
  const auto of_page = static_cast<ptrdiff_t>(layer_->layout.page) * group_;
  ptrdiff_t end = pages * of_page;
  // From the last on, so that every page moves behind where it was.
  for (size_t i = positions.size(); i-- > 0;) {
    const ptrdiff_t tokens = i + 1 == positions.size() ? last_tokens : layer_->layout.page;
    const float* const from = logits + static_cast<ptrdiff_t>(i) * of_page;
    float* const to = logits + positions[i] * of_page;
    if (to != from) std::copy_backward(from, from + tokens * group_, to + tokens * group_);
    std::fill(to + tokens * group_, logits + end, -INFINITY);
    end = positions[i] * of_page;
  }
  std::fill(logits, logits + end, -INFINITY);
}

int Attend::prompt_end(int sequence) const {
  const PassBatch& batch = pass_->batch();
  const GroupPages& kept = pass_->group(layer_->group);
  if (!kept.chunk_ends.empty()) return kept.chunk_ends[sequence];
  return batch.prompt_rows.empty() ? 0 : batch.prompt_rows[sequence];
}

bool Attend::sums_masses(int sequence) const {
  const PassBatch& batch = pass_->batch();
  return flow_ != nullptr && batch.decoding[sequence] == 0 && flow_->plan().graph.reads_mass() &&
         first_summed_row(sequence) < batch.query_rows(sequence);
}

int Attend::first_summed_row(int sequence) const {
  const PassBatch& batch = pass_->batch();
  const int end = prompt_end(sequence);
  const auto positions = batch.positions.subspan(batch.query_indptr[sequence], batch.query_rows(sequence));
  const auto first = std::lower_bound(positions.begin(), positions.end(), end - flow_->plan().graph.mass_rows);
  return end == 0 ? batch.query_rows(sequence) : static_cast<int>(first - positions.begin());
}

float* Attend::prompt_log_sums(int64_t row, int kv_head) const {
  return prompt_log_sums_.as<float>() + (kv_head * int64_t{pass_->batch().rows()} + row) * group_;
}

RequestState& Attend::prompt_state(int sequence) const {
  const PassBatch& batch = pass_->batch();
  if (batch.states.empty() || batch.states[sequence] == nullptr)
    throw InternalError("attention: a prompt whose flow keeps a state, and has got none");
  return *batch.states[sequence];
}

void Attend::sum_prompt_masses() {
  const PassBatch& batch = pass_->batch();
  const int kv_heads = pass_->pool().kv_heads();
  for (int s = 0; s < batch.sequences(); ++s) {
    if (!sums_masses(s)) continue;
    RequestState& state = prompt_state(s);
    const int length = pass_->seen(layer_->group, s);
    for (int head = 0; head < kv_heads; ++head)
      flow_->flow().prompt_masses(state, call_->layer, head, pages_for(length, layer_->layout.page));
    const int blocks = (length + kMassTokens - 1) / kMassTokens;
    pool_.run(int64_t{kv_heads} * blocks, [&](int64_t index, int thread) {
      // The first blocks are seen by the most rows.
      add_block_masses(s, static_cast<int>(index % kv_heads), static_cast<int>(index / kv_heads) * kMassTokens, thread);
    });
  }
}

void Attend::add_block_masses(int sequence, int kv_head, int first, int thread) {
  const PassBatch& batch = pass_->batch();
  const PageLayout& layout = layer_->layout;
  const GroupPages& kept = pass_->group(layer_->group);
  const int length = pass_->seen(layer_->group, sequence);
  const int skipped = first_summed_row(sequence);
  const int64_t row = batch.query_indptr[sequence] + skipped;
  PrefillTile rows{.queries = q_.row(row) + static_cast<int64_t>(kv_head) * group_ * layout.head_dim,
                   .query_stride = q_.stride,
                   .rows = batch.query_rows(sequence) - skipped,
                   .slots = kept.slots.data() + row,
                   .length = length,
                   .log_sums = prompt_log_sums(row, kv_head)};
  if (kept.is_masked(sequence)) {
    rows.masks = kept.mask(sequence, skipped, kv_head).data();
    rows.mask_stride = kept.mask_words(sequence) * kept.mask_heads;
  }
  float* const masses =
      flow_->flow().prompt_masses(prompt_state(sequence), call_->layer, kv_head, pages_for(length, layout.page));
  float* const scratch =
      scratch_[static_cast<size_t>(thread)].as<float>() + ThreadScratch(group_, layout.head_dim, 1, layout.page).kernel;
  add_masses(kv_pages(kv_head), pass_->pages(layer_->group, sequence).data(), rows, first, std::min(kMassTokens, length - first),
             group_, call_->scale, scratch, masses + static_cast<ptrdiff_t>(first) * group_);
}

void Attend::end_prompts() {
  const PassBatch& batch = pass_->batch();
  if (flow_->plan().graph.mass_rows == 0) return;
  const int kv_heads = pass_->pool().kv_heads();
  for (int s = 0; s < batch.sequences(); ++s) {
    const int end = prompt_end(s);
    const bool ends = batch.decoding[s] == 0 && end > 0 && batch.positions[batch.query_indptr[s + 1] - 1] == end - 1;
    if (!ends) continue;
    pool_.run_within(flow_->threads(), kv_heads,
                     [&](int64_t head, int thread) { end_prompt(s, static_cast<int>(head), thread); });
  }
}

int Attend::pages_shown(int sequence, int32_t* positions) const {
  const GroupPages& kept = pass_->group(layer_->group);
  if (kept.is_masked(sequence)) return find_shown_pages(pass_->batch(), kept, sequence, layer_->layout.page, positions);
  const auto pages = static_cast<int>(pass_->pages(layer_->group, sequence).size());
  std::iota(positions, positions + pages, 0);
  return pages;
}

void Attend::end_prompt(int sequence, int kv_head, int thread) {
  const PassBatch& batch = pass_->batch();
  const PageLayout& layout = layer_->layout;
  const auto pages = pass_->pages(layer_->group, sequence);
  int32_t* const positions = flow_->selected(thread);
  int32_t* const shown = positions + flow_->max_pages();
  const auto count = static_cast<size_t>(pages_shown(sequence, positions));
  if (count < pages.size() && flow_->plan().has_field_pages()) {
    throw InternalError("attention: a prompt under a pattern, with cached fields in pages of their own");
  }
  for (size_t i = 0; i < count; ++i) shown[i] = pages[static_cast<size_t>(positions[i])];
  float* masses = flow_->flow().prompt_masses(prompt_state(sequence), call_->layer, kv_head, static_cast<int>(pages.size()));
  if (masses != nullptr && count < pages.size()) {
    const auto of_page = static_cast<ptrdiff_t>(layout.page) * group_;
    float* const gathered = flow_->masses(thread);
    for (size_t i = 0; i < count; ++i)
      std::copy_n(masses + positions[i] * of_page, of_page, gathered + static_cast<ptrdiff_t>(i) * of_page);
    masses = gathered;
  }
  const int last_tokens = pass_->last_tokens(layer_->group, sequence);
  const std::span<const int32_t> ids(shown, count);
  const FlowRow row{
      .query = q_.row(batch.query_indptr[sequence + 1] - 1) + static_cast<int64_t>(kv_head) * group_ * layout.head_dim,
      .tokens = {layer_->page(0, kv_head), layer_->page_stride, ids},
      .fields = field_table(sequence, kv_head, ids),
      .last_tokens = last_tokens,
      .seed = batch.seeds.empty() ? 0 : batch.seeds[sequence],
      .layer = call_->layer,
      .kv_head = kv_head,
      .step = step_of(sequence, static_cast<int64_t>(count - 1) * layout.page + last_tokens),
      .state = &prompt_state(sequence)};
  flow_->flow().run_after(row, Ending::kPrompt, masses, flow_->scratch(thread));
}

}  // namespace sluice::cpu
