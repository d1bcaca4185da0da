#include "kernels/cpu/attention/attend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/attention/beside.h"
#include "kernels/cpu/simd/amx.h"
#include "scripting/base/bits.h"
#include "scripting/graph/selections.h"

namespace sluice::cpu {
namespace {

void grow(MappedMemory& memory, size_t bytes) {
  if (memory.bytes() < bytes) memory = MappedMemory(bytes);
}

}  // namespace

ThreadScratch::ThreadScratch(int group, int dim, int pages, int page) {
  partials = 0;
  spare = partials + static_cast<size_t>(pieces_of(pages, page)) * partial_floats(group, dim);
  of_one = partial_floats(group, dim);
  kernel = joined(2);
  total = kernel + std::max({decode_scratch_floats(group, dim), prefill_scratch_floats(dim), token_scratch_floats(group, dim),
                             mass_scratch_floats(dim), amx_attention_scratch_bytes(dim) / sizeof(float) + 1});
}

void Attend::reserve(const Device::Limits& limits) {
  const int group = limits.query_heads / limits.kv_heads;
  const size_t pieces = static_cast<size_t>(pieces_of(limits.pages_per_sequence, limits.page));
  if (tiles_ && amx_takes_dim(limits.head_dim)) {
    const int64_t tokens = static_cast<int64_t>(limits.pages_per_sequence) * limits.page;
    grow(packed_, limits.kv_heads * amx_packed_bytes(tokens, limits.head_dim));
  }
  const size_t tiles = limits.rows / prefill_tile_rows(group) + limits.sequences;
  const size_t tasks = limits.kv_heads * (limits.sequences * pieces + tiles);
  tasks_.reserve(tasks);
  selected_.reserve(tasks);
  rows_.reserve(static_cast<size_t>(limits.sequences) * limits.kv_heads);
  grow(partials_, limits.sequences * limits.kv_heads * pieces * partial_floats(group, limits.head_dim) * sizeof(float));
  grow(prompt_log_sums_, static_cast<size_t>(limits.rows) * static_cast<size_t>(limits.query_heads) * sizeof(float));
  const ThreadScratch layout(group, limits.head_dim, limits.pages_per_sequence, limits.page);
  for (MappedMemory& scratch : scratch_) grow(scratch, layout.total * sizeof(float));
}

KvPages Attend::kv_pages(int kv_head) const {
  const PageLayout& layout = layer_->layout;
  return {.base = layer_->page(0, kv_head),
          .page_stride = layer_->page_stride,
          .key_offset = layout.key_offset,
          .value_offset = layout.value_offset,
          .page = layout.page,
          .dim = layout.head_dim,
          .type = layout.kv};
}

float* Attend::query_of(int sequence, int kv_head) const {
  return q_.row(pass_->batch().query_indptr[sequence]) + static_cast<int64_t>(kv_head) * group_ * layer_->layout.head_dim;
}

float* Attend::output_of(int sequence, int kv_head) const {
  return out_.row(pass_->batch().query_indptr[sequence]) + static_cast<int64_t>(kv_head) * group_ * layer_->layout.head_dim;
}

bool Attend::sees_nothing(int sequence, int kv_head) const {
  const uint32_t* mask = pass_->mask(layer_->group, sequence, 0, kv_head);
  if (mask == nullptr) return false;
  return std::all_of(mask, mask + pass_->group(layer_->group).mask_words(sequence), [](uint32_t word) { return word == 0; });
}

int64_t Attend::count_pieces(const BatchRows& pass) const {
  int64_t pieces = 0;
  for (int s = 0; s < pass.batch().sequences(); ++s) {
    if (pass.batch().decoding[s] == 0) continue;
    pieces += pass.pool().kv_heads() * pieces_of(static_cast<int>(pass.pages(layer_->group, s).size()), layer_->layout.page);
  }
  return pieces;
}

int Attend::pieces_together(int64_t left) const {
  constexpr uint64_t kMost = 8;
  return static_cast<int>(std::bit_floor(std::clamp<uint64_t>(left / (2 * pool_.threads()), 1, kMost)));
}

void Attend::plan(const BatchRows& pass) {
  tasks_.clear();
  rows_.clear();
  const PassBatch& batch = pass.batch();
  const int kv_heads = pass.pool().kv_heads();
  const int tile_rows = prefill_tile_rows(group_);
  int64_t left = count_pieces(pass);
  int64_t partials = 0;
  int longest = 1;
  for (int s = 0; s < batch.sequences(); ++s) {
    const int pages = static_cast<int>(pass.pages(layer_->group, s).size());
    longest = std::max(longest, pages);
    if (is_packed(s)) continue;
    for (int head = 0; head < kv_heads; ++head) {
      if (batch.decoding[s] == 0) {
        // The last tile sees the most tokens: it goes first, so that no thread starts it when the others have ended.
        const int tiles = (pass.query_rows(s) + tile_rows - 1) / tile_rows;
        for (int tile = tiles - 1; tile >= 0; --tile) tasks_.push_back({Kind::kTile, s, head, tile * tile_rows, 0, 0});
      } else if (flow_ != nullptr) {
        tasks_.push_back({Kind::kFlow, s, head, 0, 0, 0});
      } else {
        const int pieces = pieces_of(pages, layer_->layout.page);
        const auto row = static_cast<int>(rows_.size());
        rows_.push_back({.first = partials, .pieces = pieces, .left = pieces});
        for (int piece = 0; piece < pieces;) {
          const int together = std::min(pieces_together(left), pieces - piece);
          tasks_.push_back({Kind::kPieces, s, head, piece, together, row});
          piece += together;
          left -= together;
        }
        partials += pieces;
      }
    }
  }
  split_masks();
  selected_.assign(tasks_.size(), 0);
  const PageLayout& layout = layer_->layout;
  grow(partials_, partials * partial_floats(group_, layout.head_dim) * sizeof(float));
  const ThreadScratch needed(group_, layout.head_dim, longest, layout.page);
  for (MappedMemory& scratch : scratch_) grow(scratch, needed.total * sizeof(float));
  if (flow_ == nullptr) return;
  flow_->ensure(longest);
  if (flow_->plan().graph.reads_mass()) {
    grow(prompt_log_sums_, static_cast<size_t>(batch.rows()) * static_cast<size_t>(kv_heads * group_) * sizeof(float));
  }
  if (flow_->plan().attend.is_plain()) return;
  for (SourceRow& row : source_rows_)
    row.reserve(flow_->plan().attend.sources.size(), static_cast<size_t>(longest), static_cast<size_t>(group_));
}

void Attend::run(const BatchRows& pass, const Device::Attention& call, const DeviceFlow* flow, const Matrix& q,
                 const Matrix& out) {
  pass_ = &pass;
  call_ = &call;
  q_ = q;
  out_ = out;
  group_ = call.query_heads / pass.pool().kv_heads();
  layer_ = &pass.pool().layer(call.layer);
  flow_ = flow;
  const bool wants_scores = flow != nullptr && call.probe != nullptr && call.probe->scores != nullptr;
  score_rows_ = wants_scores ? static_cast<int64_t>(scored_selections(flow->flow().plan().graph).size()) : 0;
  plan(pass);
  for (int s = 0; s < pass.batch().sequences(); ++s) {
    if (is_packed(s)) run_packed(s);
  }
  const int threads = flow == nullptr ? pool_.threads() : flow->threads();
  pool_.run_within(threads, static_cast<int64_t>(tasks_.size()), [this](int64_t index, int thread) {
    const Task& task = tasks_[index];
    switch (task.kind) {
      case Kind::kTile:
        return run_tile(task, thread);
      case Kind::kPieces:
        return run_pieces(task, thread);
      case Kind::kFlow:
        return run_flow(task, thread);
    }
  });
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].kind != Kind::kFlow) continue;
    const int sequence = tasks_[i].sequence;
    // Dense attention would have read those that have left, too.
    const int available = flow->plan().graph.eviction ? pages_for(static_cast<int>(step_of(sequence, 0)), layer_->layout.page)
                                                      : static_cast<int>(pass.pages(layer_->group, sequence).size());
    flow->count(selected_[i], available);
  }
  if (flow == nullptr || flow->plan().after.empty()) return;
  sum_prompt_masses();
  end_prompts();
}

PrefillTile Attend::tile_of(int sequence, int kv_head, int first, int rows) {
  const PassBatch& batch = pass_->batch();
  const int64_t row = batch.query_indptr[sequence] + first;
  const int64_t column = static_cast<int64_t>(kv_head) * group_ * layer_->layout.head_dim;
  const GroupPages& kept = pass_->group(layer_->group);
  PrefillTile tile{.queries = q_.row(row) + column,
                   .query_stride = q_.stride,
                   .out = out_.row(row) + column,
                   .out_stride = out_.stride,
                   .rows = std::min(rows, pass_->query_rows(sequence) - first),
                   .slots = kept.slots.data() + row};
  if (const PromptMasks* const masks = prompt_masks(sequence); masks != nullptr) {
    tile.masks = masks->mask(first, kv_head);
    tile.mask_stride = masks->stride();
  }
  tile.length = tile.masks == nullptr ? tile.slots[tile.rows - 1] + 1 : kept.lengths[sequence];
  return tile;
}

void Attend::split_masks() {
  const GroupPages& kept = pass_->group(layer_->group);
  const PassBatch& batch = pass_->batch();
  for (int s = 0; s < batch.sequences(); ++s) {
    if (batch.decoding[s] != 0 || !kept.is_masked(s)) continue;
    prompt_masks_.resize(std::max(prompt_masks_.size(), static_cast<size_t>(layer_->group) + 1));
    std::vector<PromptMasks>& masks = prompt_masks_[static_cast<size_t>(layer_->group)];
    masks.resize(std::max(masks.size(), static_cast<size_t>(s) + 1));
    masks[static_cast<size_t>(s)].split(pass_->number(), kept, s, pass_->query_rows(s));
  }
}

PromptMasks* Attend::prompt_masks(int sequence) {
  if (!pass_->group(layer_->group).is_masked(sequence)) return nullptr;
  return &prompt_masks_[static_cast<size_t>(layer_->group)][static_cast<size_t>(sequence)];
}

template <class AttendTile>
void Attend::attend_rows(int sequence, int kv_head, int first, int rows, int thread, AttendTile attend) {
  const PageLayout& layout = layer_->layout;
  const ThreadScratch at(group_, layout.head_dim, 1, layout.page);
  float* const memory = scratch_[thread].as<float>();
  PrefillTile tile = tile_of(sequence, kv_head, first, rows);
  const PromptMasks* const masks = prompt_masks(sequence);
  float* const kept = sums_masses(sequence) ? prompt_log_sums(pass_->batch().query_indptr[sequence] + first, kv_head) : nullptr;
  tile.log_sums = kept == nullptr && masks != nullptr ? memory + at.spare : kept;
  attend(tile, memory + at.kernel);
  if (masks == nullptr) return;
  float* const partials = memory + at.joined(0);
  const Partial others = partial_at(partials, group_, layout.head_dim);
  for (int row = 0; row < tile.rows; ++row) {
    const std::span<const int32_t> slots = masks->scattered(first + row, kv_head);
    if (slots.empty()) continue;
    float* const out = tile.out + row * tile.out_stride;
    std::copy_n(tile.log_sums + static_cast<ptrdiff_t>(row) * group_, group_, others.maximum);
    std::fill_n(others.sum, group_, 1.0F);  // of nothing as well: it vanishes beside what the tokens sum to
    std::copy_n(out, group_ * layout.head_dim, others.output);
    attend_tokens(kv_pages(kv_head), pass_->pages(layer_->group, sequence).data(), slots, tile.queries + row * tile.query_stride,
                  group_, call_->scale, memory + at.kernel, partial_at(memory + at.joined(1), group_, layout.head_dim));
    merge_partials(partials, 2, group_, layout.head_dim, out,
                   kept == nullptr ? nullptr : kept + static_cast<ptrdiff_t>(row) * group_);
  }
}

void Attend::run_tile(const Task& task, int thread) {
  attend_rows(task.sequence, task.kv_head, task.first, prefill_tile_rows(group_), thread,
              [&](const PrefillTile& tile, float* scratch) {
                attend_tile(kv_pages(task.kv_head), pass_->pages(layer_->group, task.sequence).data(), tile, group_, call_->scale,
                            scratch);
              });
}

bool Attend::is_packed(int sequence) const {
  const PageLayout& layout = layer_->layout;
  return pass_->batch().decoding[sequence] == 0 && tiles_ && layout.kv == DataType::kBF16 && amx_takes_dim(layout.head_dim);
}

void Attend::run_packed(int sequence) {
  const PageLayout& layout = layer_->layout;
  const int kv_heads = pass_->pool().kv_heads();
  const int length = pass_->seen(layer_->group, sequence);
  const int32_t* pages = pass_->pages(layer_->group, sequence).data();
  const size_t bytes = amx_packed_bytes(length, layout.head_dim);
  grow(packed_, kv_heads * bytes);
  constexpr int kTogether = 8 * kAmxPackTokens;
  const int packs = (length + kTogether - 1) / kTogether;
  static_assert(kAmxPackTokens == 32, "a word of a mask is that of a pack");
  PromptMasks* const masks = prompt_masks(sequence);
  const std::span<const uint32_t> seen = masks == nullptr ? std::span<const uint32_t>() : masks->seen();
  pool_.run(static_cast<int64_t>(kv_heads) * packs, [&](int64_t index, int) {
    const auto head = static_cast<int>(index / packs);
    const int first = static_cast<int>(index % packs) * kTogether;
    for (int token = first; token < std::min(length, first + kTogether); token += kAmxPackTokens) {
      if (masks == nullptr || seen[static_cast<size_t>(token) / 32] != 0)
        amx_pack_tokens(kv_pages(head), pages, token, length, packed_.at(head * bytes));
    }
  });
  const int tile_rows = amx_tile_rows(group_);
  const int tiles = (pass_->query_rows(sequence) + tile_rows - 1) / tile_rows;
  pool_.run(static_cast<int64_t>(kv_heads) * tiles, [&](int64_t index, int thread) {
    const auto head = static_cast<int>(index % kv_heads);
    const int tile = tiles - 1 - static_cast<int>(index / kv_heads);  // the longest first
    attend_rows(sequence, head, tile * tile_rows, tile_rows, thread, [&](const PrefillTile& part, float* scratch) {
      amx_attend_tile(packed_.at(head * bytes), layout.head_dim, part, group_, call_->scale,
                      reinterpret_cast<std::byte*>(scratch));
    });
  });
}

void Attend::run_pieces(const Task& task, int thread) {
  const PageLayout& layout = layer_->layout;
  const auto all = pass_->pages(layer_->group, task.sequence);
  DecodeRow& row = rows_[task.row];
  const size_t step = kPieceTokens / layout.page;
  float* scratch = scratch_[thread].as<float>() + ThreadScratch(group_, layout.head_dim, 1, layout.page).kernel;
  auto pages = all.subspan(task.first * step);
  pages = pages.first(std::min(pages.size(), task.pieces * step));
  prepare_piece(kv_pages(task.kv_head), pages, query_of(task.sequence, task.kv_head), group_, call_->scale, tiles_, scratch);
  const bool to_the_end = pages.data() + pages.size() == all.data() + all.size();
  for (int i = 0; i < task.pieces; ++i, pages = pages.subspan(std::min(step, pages.size()))) {
    const int last_tokens = to_the_end && i + 1 == task.pieces ? pass_->last_tokens(layer_->group, task.sequence) : layout.page;
    float* partial = partials_.as<float>() + (row.first + task.first + i) * partial_floats(group_, layout.head_dim);
    const uint32_t* mask = pass_->mask(layer_->group, task.sequence, 0, task.kv_head);
    if (mask != nullptr) mask += static_cast<ptrdiff_t>(task.first + i) * kPieceTokens / 32;
    attend_piece(kv_pages(task.kv_head), pages, std::min(step, pages.size()), last_tokens, mask, group_, tiles_, scratch,
                 partial_at(partial, group_, layout.head_dim));
  }
  // The thread that ends the row's last pieces merges it: the partials are summed in their order whoever that is.
  if (std::atomic_ref(row.left).fetch_sub(task.pieces, std::memory_order_acq_rel) > task.pieces) return;
  merge_partials(partials_.as<float>() + row.first * partial_floats(group_, layout.head_dim), row.pieces, group_, layout.head_dim,
                 output_of(task.sequence, task.kv_head), nullptr);
  if (sees_nothing(task.sequence, task.kv_head)) {
    std::fill_n(output_of(task.sequence, task.kv_head), group_ * layer_->layout.head_dim, 0.0F);
  }
  if (call_->probe != nullptr) report_dense(task.sequence, task.kv_head);
}

void Attend::attend_pages(int kv_head, std::span<const int32_t> pages, int last_tokens, const uint32_t* mask, const float* query,
                          int thread, const ThreadScratch& at, float* out, float* log_sums, float* logits) {
  const PageLayout& layout = layer_->layout;
  float* scratch = scratch_[thread].as<float>();
  const size_t step = kPieceTokens / layout.page;
  int pieces = 0;
  prepare_piece(kv_pages(kv_head), pages, query, group_, call_->scale, tiles_, scratch + at.kernel);
  for (size_t first = 0; first < pages.size(); first += step, ++pieces) {
    const size_t count = std::min(step, pages.size() - first);
    float* partial = scratch + at.partials + pieces * partial_floats(group_, layout.head_dim);
    attend_piece(kv_pages(kv_head), pages.subspan(first), count, first + count == pages.size() ? last_tokens : layout.page, mask,
                 group_, tiles_, scratch + at.kernel, partial_at(partial, group_, layout.head_dim), logits);
    if (mask != nullptr) mask += kPieceTokens / 32;
    if (logits != nullptr) logits += static_cast<ptrdiff_t>(kPieceTokens) * group_;
  }
  merge_partials(scratch + at.partials, pieces, group_, layout.head_dim, out, log_sums);
}

PageTable Attend::field_table(int sequence, int kv_head, std::span<const int32_t> pages) const {
  if (!flow_->plan().has_field_pages()) return {layer_->page(0, kv_head), layer_->page_stride, pages};
  const int group = pass_->batch().field_group;
  const LayerBlocks fields = pass_->pool().fields(group, call_->layer);
  return {fields.page(0, kv_head), fields.page_stride, pass_->pages(group, sequence)};
}

int64_t Attend::step_of(int sequence, int64_t tokens) const {
  // Where tokens leave their number says nothing.
  return flow_->plan().graph.eviction ? pass_->batch().positions[pass_->batch().query_indptr[sequence + 1] - 1] + 1 : tokens;
}

void Attend::run_flow(const Task& task, int thread) {
  if (pass_->group(layer_->group).is_masked(task.sequence) && !flow_->plan().graph.selects_under_masks()) {
    throw InternalError("attention: a flow selects whole pages, and a sequence does not see all of them");
  }
  const PassBatch& batch = pass_->batch();
  const CpuPool& pool = pass_->pool();
  const auto pages = pass_->pages(layer_->group, task.sequence);
  const int last_tokens = pass_->last_tokens(layer_->group, task.sequence);
  const float* query = query_of(task.sequence, task.kv_head);
  const AttentionProbe* probe = call_->probe;
  const int64_t slot = static_cast<int64_t>(task.sequence) * pool.kv_heads() + task.kv_head;
  const size_t wanted = pages.size() * static_cast<size_t>(scores_a_page(flow_->plan().graph));
  if (probe != nullptr && probe->scores != nullptr && static_cast<size_t>(probe->score_capacity) < wanted) {
    throw InternalError(fmt::format("probe: {} scores, room for {}", wanted, probe->score_capacity));
  }

  const FlowRow row{.query = query,
                    .tokens = {layer_->page(0, task.kv_head), layer_->page_stride, pages},
                    .fields = field_table(task.sequence, task.kv_head, pages),
                    .last_tokens = last_tokens,
                    .seed = batch.seeds.empty() ? 0 : batch.seeds[task.sequence],
                    .layer = call_->layer,
                    .kv_head = task.kv_head,
                    .step = step_of(task.sequence, pass_->seen(layer_->group, task.sequence)),
                    .state = batch.states.empty() ? nullptr : batch.states[task.sequence],
                    .scores = probe == nullptr || probe->scores == nullptr
                                  ? nullptr
                                  : probe->scores + slot * score_rows_ * probe->score_capacity,
                    .score_stride = probe == nullptr ? 0 : probe->score_capacity};
  int32_t* positions = flow_->selected(thread);
  int32_t* chosen = positions + flow_->max_pages();
  int count = flow_->flow().select(row, flow_->scratch(thread), positions);
  if (count < 1 || count > static_cast<int>(pages.size())) {
    throw InternalError(fmt::format("a flow selected {} of {} pages", count, pages.size()));
  }
  const bool of_tokens = flow_->plan().graph.selects_tokens();
  const std::span<const uint32_t> tokens =
      of_tokens ? flow_->flow().selected_tokens(flow_->scratch(thread)) : std::span<const uint32_t>();
  if (probe != nullptr) report(slot, {positions, static_cast<size_t>(count)});
  if (probe != nullptr && of_tokens) report_tokens(slot, {positions, static_cast<size_t>(count)}, tokens);
  const BesideTokens& beside = pass_->group(layer_->group).beside;
  const uint32_t* mask = nullptr;
  const uint32_t* const visible = pass_->mask(layer_->group, task.sequence, 0, task.kv_head);
  if (visible != nullptr || of_tokens || (!beside.empty() && count < static_cast<int>(pages.size()))) {
    const std::span<uint32_t> room = flow_->mask(thread);
    const auto words = visible == nullptr ? 0 : static_cast<size_t>(pass_->group(layer_->group).mask_words(task.sequence));
    count =
        join_beside(beside, task.sequence, layer_->layout.page, {visible, words}, tokens, {positions, pages.size()}, count, room);
    mask = room.data();
  }
  for (int i = 0; i < count; ++i) chosen[i] = pages[positions[i]];
  const bool with_last = positions[count - 1] == static_cast<int>(pages.size()) - 1;
  const int chosen_last_tokens = with_last ? last_tokens : layer_->layout.page;

  const ThreadScratch at(group_, layer_->layout.head_dim, static_cast<int>(pages.size()), layer_->layout.page);
  std::array<float, kMostHeads> log_sums;
  const bool is_plain = flow_->plan().attend.is_plain();
  float* const masses = flow_->masses(thread);
  // Of several sources a probe asks for the mass of the tokens of the first.
  if (is_plain || (probe != nullptr && probe->mass != nullptr)) {
    attend_pages(task.kv_head, {chosen, static_cast<size_t>(count)}, chosen_last_tokens, mask, query, thread, at,
                 output_of(task.sequence, task.kv_head), log_sums.data(), is_plain ? masses : nullptr);
  }
  const int attended = is_plain ? count : attend_sources(row, thread, output_of(task.sequence, task.kv_head), masses);
  if (mask != nullptr && !has_any_bit({mask, flow_->mask(thread).size()}, 0, int64_t{count} * layer_->layout.page)) {
    std::fill_n(output_of(task.sequence, task.kv_head), group_ * layer_->layout.head_dim, 0.0F);
    log_sums.fill(-INFINITY);
  }
  selected_[&task - tasks_.data()] = attended;
  if (!flow_->plan().after.empty()) {
    end_step(row, {positions, static_cast<size_t>(count)}, chosen_last_tokens, log_sums.data(), thread);
  }
  if (probe == nullptr || probe->mass == nullptr) return;
  if (count == static_cast<int>(pages.size()) && mask == nullptr) {
    probe->mass[slot] = 1;
    return;
  }
  std::array<float, kMostHeads> all_log_sums;
  attend_pages(task.kv_head, pages, last_tokens, visible, query, thread, at, scratch_[thread].as<float>() + at.spare,
               all_log_sums.data());
  float mass = 0;
  for (int h = 0; h < group_ && log_sums[h] > -INFINITY; ++h) mass += std::exp2(log_sums[h] - all_log_sums[h]);
  probe->mass[slot] = mass / static_cast<float>(group_);
}

}  // namespace sluice::cpu
