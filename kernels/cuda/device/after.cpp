#include <algorithm>

#include "kernels/cuda/attention/prompt_masses.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flow/device_flow.h"
#include "kernels/cuda/flow/eviction.h"
#include "kernels/cuda/flow/state.h"
#include "kernels/cuda/primitives/round_up.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/device/checks.h"
#include "kernels/device/shown_pages.h"

// What CudaDevice does for flows that look back: what prompts gave their tokens, after stages of prompts, and tokens that leave.

namespace sluice::cuda {
namespace {

/// The rows of a prompt once which have been attended to the after stage runs; 0: it does not.
int prompt_end(const PassBatch& batch, const GroupPages& kept, int sequence) {
  const auto s = static_cast<size_t>(sequence);
  if (!kept.chunk_ends.empty()) return kept.chunk_ends[s];
  return batch.prompt_rows.empty() ? 0 : batch.prompt_rows[s];
}

/// Position of the first row whose weights are summed for an after stage that runs behind row `end` - 1.
int first_summed(const FlowGraph& graph, int end) {
  const int chunk = graph.eviction ? graph.eviction->chunk : 0;
  const int begin = chunk == 0 ? 0 : (end - 1) / chunk * chunk;
  return std::max(begin, graph.mass_rows >= end ? 0 : end - graph.mass_rows);
}

/// Memory that is cut into arrays of 16-byte places.
class Cut {
 public:
  explicit Cut(std::byte* memory = nullptr) : memory_(memory) {}
  template <class T>
  T* take(size_t count) {
    T* const here = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return here;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  size_t bytes_ = 0;
};

struct EvictionMemory {
  EvictionScratch scratch;
  MovedPages moved;
};

/// Of so many rows of a KV head. `pages`: that tokens of a row can move to; 0: nobody asks for them.
EvictionMemory cut_eviction(Cut& cut, int64_t rows, int kv_heads, int64_t moves, int pages, bool apart) {
  EvictionMemory memory;
  memory.scratch = {.moves = cut.take<SlotMove>(static_cast<size_t>(rows * kv_heads * moves)), .room = moves};
  if (pages == 0) return memory;
  const auto entries = static_cast<size_t>(rows * pages * kv_heads);
  memory.moved = {.pages = cut.take<int32_t>(entries), .tokens = cut.take<int32_t>(entries), .room = pages};
  if (apart) memory.moved.fields = cut.take<int32_t>(entries);
  return memory;
}

}  // namespace

void CudaDevice::evict(const CompiledFlow& flow) {
  const auto told = operation("evict");
  if (!pass_.active()) throw InternalError("evict was called outside a pass");
  const RegisteredFlow& registered = as_cuda(flow);
  const std::vector<int> layers = evicted_layers(registered.plan(), pass_.pool(), pass_.batch());
  refresh_now();
  pass_.arrays(stream_.get(), 0);  // are sent before it begins
  copying_.join(stream_.get());
  making_room_.begin(stream_.get());
  // As many at a time as travel with a launch, of one group.
  for (size_t first = 0, last = 0; first < layers.size(); first = last) {
    const int group = pass_.pool().group_of(layers[first]);
    while (last < layers.size() && last - first < EvictedLayers::kMost && pass_.pool().group_of(layers[last]) == group) ++last;
    evict_layers(registered, std::span(layers).subspan(first, last - first));
  }
}

void CudaDevice::evict_layers(const RegisteredFlow& registered, std::span<const int> layers) {
  const CudaPool& pool = pass_.pool();
  CudaFlow& mine = registered.flow();
  const Plan& plan = mine.plan();
  const PassBatch& batch = pass_.batch();
  const int group = pool.group_of(layers.front());
  const GroupPages& kept = pass_.group(group);
  check_flow_sequences(mine, group, 0, batch.sequences());
  int moves = 1;
  int most_held = 0;
  int most_leave = 0;
  int most_staying = 1;
  for (int s = 0; s < batch.sequences(); ++s) {
    const int staying = kept.staying(s, batch.query_rows(s));
    const int held = kept.held[static_cast<size_t>(s)];
    moves = std::max(moves, std::min(held - staying, staying));
    most_held = std::max(most_held, held);
    most_leave = std::max(most_leave, held - staying);
    most_staying = std::max(most_staying, staying);
  }
  const bool apart = plan.has_field_pages();
  const int pages = plan.graph.fields.empty() ? 0 : std::min(moves, pages_for(most_staying, plan.layout.page));
  const int64_t rows = std::ssize(layers) * batch.sequences();
  Cut sizes;
  cut_eviction(sizes, rows, pool.kv_heads(), moves, pages, apart);
  grow(mine.eviction_scratch(), sizes.bytes());
  Cut cut(mine.eviction_scratch().as<std::byte>());
  EvictionMemory memory = cut_eviction(cut, rows, pool.kv_heads(), moves, pages, apart);
  memory.scratch.available = registered.page_counters().available;
  if (mine.attends_to_all()) memory.scratch.attended = registered.page_counters().attended;

  const LayerPages blocks = pool.layer(layers.front());
  const codegen::FlowLayout& layout = mine.layout();
  const codegen::StateSlot& score = layout.states[static_cast<size_t>(layout.state_index(plan.graph.eviction->score))];
  EvictedLayers evicted{.count = static_cast<int>(layers.size()),
                        .page_stride = blocks.block_bytes * static_cast<size_t>(blocks.kv_heads),
                        .block_bytes = blocks.block_bytes,
                        .key_offset = blocks.key_offset,
                        .value_offset = blocks.value_offset,
                        .row_bytes = blocks.head_dim * static_cast<int>(size_of(blocks.kv)),
                        .page = blocks.page,
                        .kv_heads = blocks.kv_heads,
                        .state_page_numbers = layout.state_page_numbers,
                        .state_fixed_numbers = layout.state_fixed_numbers,
                        .score_offset = score.offset,
                        .token_states = mine.token_states(),
                        .token_state_count = mine.token_state_count()};
  for (size_t i = 0; i < layers.size(); ++i) {
    evicted.base[i] = pool.layer(layers[i]).base;
    evicted.state_layer[i] = mine.state_layer(layers[i]);
  }
  const EvictionRule rule{.first = plan.graph.eviction->first,
                          .recent = plan.graph.eviction->recent,
                          .last_readers = mine.last_readers(kept.last_readers)};
  const PassArrays arrays = pass_.arrays(stream_.get(), group);
  EvictingBatch evicting{.sequences = batch.sequences(),
                         .most_held = most_held,
                         .most_leave = most_leave,
                         .page_indptr = arrays.page_indptr,
                         .page_indices = arrays.page_indices,
                         .held = arrays.held,
                         .staying = arrays.staying,
                         .newest = arrays.newest,
                         .dense_pages = arrays.dense_pages,
                         .query_indptr = arrays.query_indptr,
                         .positions = arrays.positions,
                         .states = arrays.states_of(plan.program, 0)};
  if (apart) {
    const PassArrays of_fields = pass_.arrays(stream_.get(), batch.field_group);
    evicting.field_indptr = of_fields.page_indptr;
    evicting.field_indices = of_fields.page_indices;
  }
  evict_tokens(evicted, rule, evicting, memory.moved, memory.scratch, making_room_.stream());
  if (pages == 0) return;
  const int count = batch.sequences() * pages;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto first = static_cast<int64_t>(i) * count * pool.kv_heads();
    const StaleBlocks stale{.count = count,
                            .pages = memory.moved.pages + first,
                            .fields = memory.moved.fields == nullptr ? nullptr : memory.moved.fields + first,
                            .tokens = memory.moved.tokens + first,
                            .by_head = true};
    mine.refresh(blocks_of(pool, layers[i], plan, batch.field_group), stale, making_room_.stream());
  }
}

void CudaDevice::end_prompts(const Attention& call, const RegisteredFlow& flow, const Matrix& query, const Matrix& q) {
  const PassBatch& batch = pass_.batch();
  const FlowGraph& graph = flow.plan().graph;
  if (graph.mass_rows == 0) return;
  const GroupPages& kept = pass_.group(pass_.pool().group_of(call.layer));
  for (int s = 0; s < batch.sequences(); ++s) {
    const int end = prompt_end(batch, kept, s);
    if (batch.decoding[static_cast<size_t>(s)] != 0 || end == 0) continue;
    const int last = batch.positions[static_cast<size_t>(batch.query_indptr[static_cast<size_t>(s) + 1]) - 1];
    if (graph.reads_mass() && last >= first_summed(graph, end)) sum_prompt_masses(call, flow.flow(), q, s, end);
    if (last == end - 1) end_prompt(call, flow, query, s);
  }
}

void CudaDevice::sum_prompt_masses(const Attention& call, const CudaFlow& flow, const Matrix& q, int sequence, int end) {
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  const int group = pool.group_of(call.layer);
  const GroupPages& kept = pass_.group(group);
  const PassArrays arrays = pass_.arrays(stream_.get(), group);
  const CudaFlowState& state = state_of(flow, sequence);
  const int first_row = batch.query_indptr[static_cast<size_t>(sequence)];
  const auto positions = batch.positions.subspan(static_cast<size_t>(first_row), static_cast<size_t>(batch.query_rows(sequence)));
  const int first = first_summed(flow.plan().graph, end);
  const auto skipped = static_cast<int>(std::lower_bound(positions.begin(), positions.end(), first) - positions.begin());
  const LayerPages pages = pool.layer(call.layer);
  const PagedKv kv = pool.decode_attention(call.layer).kv();
  const PromptMasses masses(kv);
  const int of_group = call.query_heads / pool.kv_heads();
  PromptRows rows{.q = static_cast<const uint16_t*>(q.data) + (first_row + skipped) * q.stride,
                  .q_stride = q.stride,
                  .rows = batch.query_rows(sequence) - skipped,
                  .group = of_group,
                  .scale = call.scale,
                  .pages = arrays.page_indices + pass_.first_page(group, sequence),
                  .slots = arrays.slots + first_row + skipped,
                  .length = pass_.seen(group, sequence)};
  if (kept.is_masked(sequence)) {
    const int words = kept.mask_words(sequence);
    rows.masks = arrays.masks + pass_.first_mask(group, sequence) + int64_t{skipped} * kept.mask_heads * words;
    rows.mask_heads = kept.mask_heads;
  }
  // Of slots that rows of an earlier pass have seen there are sums, if rows of it counted.
  const int known = positions.front() > first ? kept.staying(sequence, batch.query_rows(sequence)) : 0;
  grow(prefill_workspace_, masses.workspace_bytes(rows.rows, of_group));
  masses.add(rows, state.prompt_masses(flow.state_layer(call.layer)), int64_t{state.max_pages()} * pages.page, known,
             prefill_workspace_.data(), stream_.get());
}

int CudaDevice::add_row_masses(const RowMasses& call, Matrix q, Matrix masses) {
  const auto told = operation("row masses");
  if (!pass_.active()) throw InternalError("row masses were asked for outside a pass");
  const CudaPool& pool = pass_.pool();
  require_layer("row masses", call.layer, pool);
  require_numbers("row masses", q);
  const int seen = require_row_masses(call, q, masses, pass_.batch(), pool);
  if (call.rows.empty()) return seen;
  const int group = pool.group_of(call.layer);
  std::vector<int32_t> slots;
  for (const int32_t row : call.rows) slots.push_back(pass_.group(group).slots[static_cast<size_t>(row)]);
  const auto count = std::ssize(call.rows);
  grow(plain_q_, static_cast<size_t>(count * q.columns) * sizeof(uint16_t));
  const Matrix queries{plain_q_.data(), DataType::kBF16, count, q.columns, q.columns};
  const int32_t* const rows = send(call.rows, slots);
  cuda::gather_rows(q, rows, queries, stream_.get());
  const PromptMasses sums(pool.decode_attention(call.layer).kv());
  const int of_group = call.query_heads / pool.kv_heads();
  const PromptRows prompt{.q = static_cast<const uint16_t*>(queries.data),
                          .q_stride = queries.stride,
                          .rows = static_cast<int>(count),
                          .group = of_group,
                          .scale = call.scale,
                          .pages = pass_.arrays(stream_.get(), group).page_indices + pass_.first_page(group, 0),
                          .slots = rows + count,
                          .length = slots.back() + 1};
  auto* const to = static_cast<float*>(masses.data);
  const size_t workspace = round_up<size_t>(sums.workspace_bytes(prompt.rows, of_group), sizeof(float4));
  if (masses.rows == call.query_heads) {
    grow(prefill_workspace_, workspace);
    sums.add(prompt, to, masses.stride, call.known, prefill_workspace_.data(), stream_.get());
    return seen;
  }
  const int64_t length = round_up<int64_t>(prompt.length, 4);
  grow(prefill_workspace_, workspace + static_cast<size_t>(call.query_heads * length) * sizeof(float));
  auto* const of_heads = reinterpret_cast<float*>(prefill_workspace_.as<std::byte>() + workspace);
  sums.add(prompt, of_heads, length, 0, prefill_workspace_.data(), stream_.get());
  cuda::add_rows({of_heads, DataType::kF32, call.query_heads, prompt.length, length}, call.known, to, stream_.get());
  return seen;
}

void CudaDevice::end_prompt(const Attention& call, const RegisteredFlow& flow, const Matrix& query, int sequence) {
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  const Plan& plan = flow.plan();
  CudaFlow& mine = flow.flow();
  const int group = pool.group_of(call.layer);
  const PassArrays arrays = pass_.arrays(stream_.get(), group);
  check_flow_sequences(mine, group, sequence, sequence + 1);
  if (!mine.keeps_layers_apart()) beside_.join(stream_.get());
  const int last_row = batch.query_indptr[static_cast<size_t>(sequence) + 1] - 1;
  FlowSequences sequences{.count = 1,
                          .most_pages = pass_.page_count(group, sequence),
                          .lengths = arrays.seen + sequence,
                          .page_indptr = arrays.page_indptr + sequence,
                          .page_indices = arrays.page_indices,
                          .seeds = arrays.seeds + sequence,
                          .steps = arrays.newest == nullptr ? nullptr : arrays.newest + sequence,
                          .states = arrays.states_of(plan.program, sequence),
                          .visible_indptr = arrays.mask_indptr + sequence,
                          .visible = arrays.masks,
                          .beside_indptr = arrays.beside_indptr + sequence,
                          .beside = arrays.page_indices,
                          .query = static_cast<const std::byte*>(query.data) + last_row * query.stride * size_of(query.type),
                          .query_stride = query.stride,
                          .query_type = query.type};
  if (plan.has_field_pages()) {
    const PassArrays of_fields = pass_.arrays(stream_.get(), batch.field_group);
    sequences.field_indptr = of_fields.page_indptr + sequence;
    sequences.field_indices = of_fields.page_indices;
  }
  TokenMasses masses;
  if (plan.graph.reads_mass()) {
    const CudaFlowState& state = state_of(mine, sequence);
    masses = {.numbers = state.prompt_masses(mine.state_layer(call.layer)),
              .stride = int64_t{state.max_pages()} * plan.layout.page};
  }
  if (pass_.group(group).is_masked(sequence)) show_pages(group, sequence, plan, sequences, masses);
  mine.run_after(blocks_of(pool, call.layer, plan, batch.field_group), sequences, masses, true, true, stream_.get());
}

void CudaDevice::show_pages(int group, int sequence, const Plan& plan, FlowSequences& sequences, TokenMasses& masses) {
  const GroupPages& kept = pass_.group(group);
  const int page = plan.layout.page;
  const std::span<const int32_t> pages = kept.pages(sequence, page);
  std::vector<int32_t> places(pages.size());
  places.resize(static_cast<size_t>(find_shown_pages(pass_.batch(), kept, sequence, page, places.data())));
  if (places.size() == pages.size()) return;
  if (plan.has_field_pages())
    throw InternalError("attention: a prompt under a pattern, with cached fields in pages of their own");
  const auto count = static_cast<int32_t>(places.size());
  const int last_tokens = kept.lengths[static_cast<size_t>(sequence)] - (static_cast<int>(pages.size()) - 1) * page;
  // Where the list begins, how many tokens its pages have, the list; then the rows of masses, one a page, head by head.
  std::vector<int32_t> told = {0, (count - 1) * page + last_tokens};
  for (const int32_t place : places) told.push_back(pages[static_cast<size_t>(place)]);
  const int heads = pass_.pool().kv_heads() * plan.graph.geometry.group;
  const int64_t of_head = masses.stride / page;
  for (int head = 0; head < heads && masses.numbers != nullptr; ++head) {
    for (const int32_t place : places) told.push_back(static_cast<int32_t>(head * of_head + place));
  }
  const int32_t* const sent = send(told);
  sequences.most_pages = count;
  sequences.page_indptr = sent;
  sequences.lengths = sent + 1;
  sequences.page_indices = sent + 2;
  if (masses.numbers == nullptr) return;
  grow(prefill_workspace_, static_cast<size_t>(heads) * static_cast<size_t>(count) * static_cast<size_t>(page) * sizeof(float));
  auto* const shown = prefill_workspace_.as<float>();
  cuda::gather_rows({const_cast<float*>(masses.numbers), DataType::kF32, heads * of_head, page, page}, sent + 2 + count,
                    {shown, DataType::kF32, int64_t{heads} * count, page, page}, stream_.get());
  masses.numbers = shown;
  masses.stride = int64_t{count} * page;
}

}  // namespace sluice::cuda
