#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flow/compile_ahead.h"
#include "kernels/cuda/flow/device_flow.h"
#include "kernels/cuda/flow/state.h"
#include "kernels/cuda/runtime/step_graphs.h"
#include "kernels/device/checks.h"

// What CudaDevice does with pages: refreshing their fields, and attention.

namespace sluice::cuda {
FlowBlocks blocks_of(const CudaPool& pool, int layer, const Plan& plan, int field_group) {
  const LayerPages pages = pool.layer(layer);
  FlowBlocks blocks{.base = pages.base,
                    .page_stride = pages.block_bytes * pages.kv_heads,
                    .block_bytes = pages.block_bytes,
                    .kv_heads = pages.kv_heads,
                    .layer = layer};
  if (plan.has_field_pages()) {
    blocks.fields = pool.fields(field_group, layer);
    blocks.field_block_bytes = plan.fields().bytes;
    blocks.field_page_stride = blocks.field_block_bytes * pages.kv_heads;
  }
  return blocks;
}

void require_numbers(const char* operation, const Matrix& matrix) {
  if (matrix.type != DataType::kF32 && matrix.type != DataType::kBF16) {
    throw InternalError(fmt::format("{}: activations on the GPU are f32 or bf16, not {}", operation, name_of(matrix.type)));
  }
}

CudaPool& as_cuda(Pool& pool) {
  auto* mine = dynamic_cast<CudaPool*>(&pool);
  if (mine == nullptr) throw InternalError("a page pool of another device was given to the GPU");
  return *mine;
}

const RegisteredFlow& as_cuda(const CompiledFlow& flow) {
  const auto* mine = dynamic_cast<const RegisteredFlow*>(&flow);
  if (mine == nullptr) throw InternalError("a flow of another device was given to the GPU");
  return *mine;
}

std::unique_ptr<CompiledFlow> CudaDevice::compile(const Plan& plan, int layers, int kv_heads) {
  require_group(info_, plan.graph.geometry.group);
  auto flow = std::make_unique<RegisteredFlow>(plan, layers, kv_heads, flows_, stream_.get());
  flow->reserve(std::min(limits_.sequences, kMostLists), limits_.pages_per_sequence);
  return flow;
}

void CudaDevice::compile_ahead(std::span<const Plan> plans) { compile_flows_ahead(plans); }

void CudaDevice::refresh_fields(int layer, const CompiledFlow& flow) {
  const auto told = operation("refresh_fields");
  if (!pass_.active()) throw InternalError("refresh_fields was called outside a pass");
  const CudaPool& pool = pass_.pool();
  require_layer("refresh_fields", layer, pool);
  CudaFlow& mine = as_cuda(flow).flow();
  require_pages_of("refresh_fields", mine.plan(), pool, layer, pass_.batch().field_group);
  refresh_now();
  left_to_selection_ = {&mine, layer};
  const std::span<const uint8_t> decoding = pass_.batch().decoding;
  if (std::find(decoding.begin(), decoding.end(), 0) != decoding.end()) refresh_now();
}

void CudaDevice::refresh_now() {
  const Refresh refresh = std::exchange(left_to_selection_, {});
  if (refresh.flow == nullptr) return;
  const PassArrays arrays = pass_.arrays(stream_.get(), pass_.pool().group_of(refresh.layer));
  const Plan& plan = refresh.flow->plan();
  const int field_group = pass_.batch().field_group;
  StaleBlocks stale{.count = arrays.touched, .pages = arrays.touched_pages, .tokens = arrays.touched_tokens};
  if (plan.has_field_pages()) stale.fields = pass_.arrays(stream_.get(), field_group).touched_pages;
  const bool queued = refresh.flow->refresh(blocks_of(pass_.pool(), refresh.layer, plan, field_group), stale, stream_.get());
  if (queued) refreshed_ = refresh;
}

void CudaDevice::end_pass() noexcept {
  try {
    refresh_now();
  } catch (const std::exception&) {
    left_to_selection_ = {};  // a device that fails says so to whoever uses it next
  }
  making_room_.join(stream_.get());
  beside_.join(stream_.get());
  pass_.end();
}

void CudaDevice::refresh_pages(Pool& pool, int layer, const StalePages& stale, const CompiledFlow& flow) {
  const auto told = operation("refresh_pages");
  const CudaPool& memory = as_cuda(pool);
  require_layer("refresh_pages", layer, memory);
  CudaFlow& mine = as_cuda(flow).flow();
  const Plan& plan = mine.plan();
  if (plan.graph.fields.empty() || stale.pages.empty()) return;
  require_stale(plan, memory, layer, stale);
  const std::span<const int32_t> field_pages = plan.has_field_pages() ? stale.field_pages : std::span<const int32_t>{};
  StaleBlocks blocks{.count = static_cast<int>(stale.pages.size()), .last_tokens = stale.last_tokens};
  blocks.pages = send(stale.pages, field_pages);
  blocks.fields = blocks.pages + (plan.has_field_pages() ? stale.pages.size() : 0);
  mine.refresh(blocks_of(memory, layer, plan, stale.field_group), blocks, stream_.get());
}

Matrix CudaDevice::plain(const Matrix& matrix, DeviceMemory& spare) {
  if (matrix.type == DataType::kBF16 && matrix.stride == matrix.columns) return matrix;
  grow(spare, matrix.rows * matrix.columns * sizeof(uint16_t));
  return {spare.data(), DataType::kBF16, matrix.rows, matrix.columns, matrix.columns};
}

void CudaDevice::attention(const Attention& call, Matrix q, Matrix out) {
  const auto told = operation(call.flow == nullptr ? "attention, dense" : "index and attention, flow");
  if (!pass_.active()) throw InternalError("attention was called outside a pass");
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  require_layer("attention", call.layer, pool);
  const PageLayout& layout = pool.layout_of(call.layer);
  const int64_t columns = static_cast<int64_t>(call.query_heads) * layout.head_dim;
  require_numbers("attention", q);
  require_numbers("attention", out);
  require_equal("attention", "q.rows", q.rows, batch.rows());
  require_equal("attention", "out.rows", out.rows, batch.rows());
  require_equal("attention", "q.columns", q.columns, columns);
  require_equal("attention", "out.columns", out.columns, columns);
  require_equal("attention", "query_heads modulo kv_heads", call.query_heads % pool.kv_heads(), 0);
  const RegisteredFlow* const flow = call.flow == nullptr ? nullptr : &as_cuda(*call.flow);
  if (flow != nullptr) require_pages_of("attention", flow->plan(), pool, call.layer, batch.field_group);
  reserve_decode(pool.decode_attention(call.layer), call.query_heads / pool.kv_heads());

  // Where tokens leave, other pages than the newest have been written to as well.
  const bool takes_refresh = flow != nullptr && &flow->flow() == left_to_selection_.flow &&
                             call.layer == left_to_selection_.layer && !flow->plan().graph.eviction;
  if (!takes_refresh) refresh_now();
  const bool as_it_is = q.type == DataType::kBF16 && q.stride % 8 == 0 && reinterpret_cast<uintptr_t>(q.data) % 16 == 0;
  const Matrix from = as_it_is ? q : plain(q, plain_q_);
  const Matrix to = plain(out, plain_out_);
  if (from.data != q.data) cuda::gather_rows(q, nullptr, from, stream_.get());
  for (int first = 0, last = 0; first < batch.sequences(); first = last) {
    while (last < batch.sequences() && batch.decoding[last] == batch.decoding[first]) ++last;
    if (batch.decoding[first] == 0) {
      attend_prefill(call, from, to, first, last);
      continue;
    }
    if (flow != nullptr) {
      last = std::min(last, first + kMostLists);
      attend_flow(call, *flow, q, from, to, first, last);
      continue;
    }
    attend_decode(call, from, to, first, last);
    for (int s = first; call.probe != nullptr && s < last; ++s) report_dense(call, s);
  }
  left_to_selection_ = {};
  if (flow != nullptr && !flow->plan().after.empty()) end_prompts(call, *flow, q, from);
  if (to.data != out.data) cuda::gather_rows(to, nullptr, out, stream_.get());
}

void* CudaDevice::decode_workspace(const DecodeAttention& attention, const DecodeShape& shape) const {
  // Counters come first in what attention is given, and must be zero, which it leaves them. They end at the same place whatever
  // their number, so that no call's partial results lie where another's counters are.
  const size_t counters = attention.workspace_bytes(shape) - attention.workspace_bytes({.sequences = 0, .group = shape.group});
  return decode_workspace_.as<std::byte>() + decode_counters_ - counters;
}

void CudaDevice::attend_lists(const Attention& call, const DecodeShape& shape, const PageLists& lists, const Matrix& q,
                              const Matrix& out, int first, float* sums, const TokenLogits& logits) {
  const DecodeAttention& attention = pass_.pool().decode_attention(call.layer);
  DecodeShape strided = shape;
  strided.query_stride = q.stride;
  const int64_t row = pass_.batch().query_indptr[first];
  attention.run(strided, lists, static_cast<const uint16_t*>(q.data) + row * q.stride,
                static_cast<uint16_t*>(out.data) + row * out.stride, sums, decode_workspace(attention, shape), stream_.get(),
                logits);
}

void CudaDevice::attend_under(const Attention& call, const DecodeShape& shape, const Cover& cover, const Matrix& q,
                              const Matrix& out, int first) {
  const DecodeAttention& attention = pass_.pool().decode_attention(call.layer);
  DecodeShape strided = shape;
  strided.query_stride = q.stride;
  const int64_t row = pass_.batch().query_indptr[first];
  attend_cover(attention, strided, cover, static_cast<const uint16_t*>(q.data) + row * q.stride,
               static_cast<uint16_t*>(out.data) + row * out.stride, decode_workspace(attention, shape), stream_.get());
}

Matrix CudaDevice::probe_output(const Matrix& q) {
  grow(probe_out_, static_cast<size_t>(q.rows) * q.columns * sizeof(uint16_t));
  return {probe_out_.data(), DataType::kBF16, q.rows, q.columns, q.columns};
}

PageLists CudaDevice::all_pages(int layer, int first) {
  const int group = pass_.pool().group_of(layer);
  const PassArrays arrays = pass_.arrays(stream_.get(), group);
  PageLists lists{.pages = arrays.page_indices, .starts = arrays.page_indptr + first, .tokens = arrays.seen + first};
  // Kernels of a pass write the newest tokens, which are the last of lists without masks. Where tokens leave, others have moved
  // before the kernel began that appends the first layer's rows (`making_room_`).
  lists.are_ready = !pass_.group(group).has_masks();
  if (pass_.group(group).has_masks()) {
    lists.mask_indptr = arrays.mask_indptr + first;
    lists.masks = arrays.masks;
    lists.mask_heads = pass_.group(group).mask_heads;
  }
  return lists;
}

void CudaDevice::attend_decode(const Attention& call, const Matrix& q, const Matrix& out, int first, int last) {
  for (; first < last; first += kMostLists) {
    attend_lists(call,
                 {.sequences = std::min(kMostLists, last - first),
                  .group = call.query_heads / pass_.pool().kv_heads(),
                  .scale = call.scale},
                 all_pages(call.layer, first), q, out, first, nullptr);
  }
}

const CudaFlowState& CudaDevice::state_of(const CudaFlow& flow, int sequence) const {
  const std::span<RequestState* const> states = pass_.batch().states;
  RequestState* const kept = states.empty() ? nullptr : states[static_cast<size_t>(sequence)];
  const auto* const state = kept == nullptr ? nullptr : dynamic_cast<CudaFlowState*>(kept->find_program(flow.plan().program));
  if (state == nullptr) throw InternalError("attention: a flow keeps state and got none");
  return *state;
}

void CudaDevice::check_flow_sequences(const CudaFlow& flow, int group, int first, int last) const {
  if (flow.plan().graph.states.empty()) return;
  for (int s = first; s < last; ++s) {
    const int held = pass_.group(group).held.empty() ? 0 : pages_for(pass_.group(group).held[s], flow.plan().layout.page);
    const int pages = std::max(held, pass_.page_count(group, s));
    const int most = state_of(flow, s).max_pages();
    if (most < pages) throw InternalError(fmt::format("attention: {} pages, state for {}", pages, most));
  }
}

int CudaDevice::bound_on_pages() const {
  int most = 0;
  for (int group = 0; group < static_cast<int>(pass_.batch().groups.size()); ++group) {
    for (int s = 0; s < pass_.batch().sequences() && pass_.group(group).is_used(); ++s) {
      if (pass_.batch().decoding[s] != 0) most = std::max(most, pass_.page_count(group, s));
    }
  }
  return std::max(most, std::min(round_pages(most), limits_.pages_per_sequence));
}

bool CudaDevice::decodes_evenly() const {
  const PassBatch& batch = pass_.batch();
  int64_t count = 0;
  int64_t all = 0;
  int64_t longest = 0;
  for (int s = 0; s < batch.sequences(); ++s) {
    if (batch.decoding[s] == 0) continue;
    ++count;
    const int64_t tokens = batch.positions[batch.query_indptr[s]] + 1;
    all += tokens;
    longest = std::max(longest, tokens);
  }
  return count <= kMostLists && 5 * all >= 4 * longest * count;
}

void CudaDevice::attend_flow(const Attention& call, const RegisteredFlow& flow, const Matrix& query, const Matrix& q,
                             const Matrix& out, int first, int last) {
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  const Plan& plan = flow.plan();
  const int group = pool.group_of(call.layer);
  if (pass_.group(group).has_masks() && !plan.graph.selects_under_masks()) {
    throw InternalError("attention: a flow selects whole pages, and a sequence does not see all of them");
  }
  if (!flow.flow().keeps_layers_apart()) beside_.join(stream_.get());
  const PassArrays arrays = pass_.arrays(stream_.get(), group);
  const DecodeShape shape{.sequences = last - first, .group = call.query_heads / pool.kv_heads(), .scale = call.scale};
  require_equal("attention", "query heads of a KV head", shape.group, plan.graph.geometry.group);
  FlowSequences sequences;
  sequences.count = shape.sequences;
  check_flow_sequences(flow.flow(), group, first, last);
  sequences.most_pages = bound_on_pages();
  sequences.even = decodes_evenly();
  if (!plan.graph.states.empty()) sequences.states = arrays.states_of(plan.program, first);
  // Under a pattern the list of another step has other pages.
  if (plan.graph.patterns.empty()) sequences.hints = arrays.hints_of(plan.program, first);
  if (arrays.newest != nullptr) sequences.steps = arrays.newest + first;
  sequences.lengths = arrays.seen + first;
  sequences.page_indptr = arrays.page_indptr + first;
  sequences.page_indices = arrays.page_indices;
  PassArrays of_fields;
  if (plan.has_field_pages()) {
    of_fields = pass_.arrays(stream_.get(), batch.field_group);
    sequences.field_indptr = of_fields.page_indptr + first;
    sequences.field_indices = of_fields.page_indices;
  }
  sequences.visible_indptr = arrays.mask_indptr + first;
  sequences.visible = arrays.masks;
  sequences.visible_heads = pass_.group(group).mask_heads;
  sequences.beside_indptr = arrays.beside_indptr + first;
  sequences.beside = arrays.page_indices;
  sequences.seeds = arrays.seeds + first;
  sequences.query = static_cast<const std::byte*>(query.data) + batch.query_indptr[first] * query.stride * size_of(query.type);
  sequences.query_stride = query.stride;
  sequences.query_type = query.type;
  sequences.wants_scores = call.probe != nullptr && call.probe->scores != nullptr;
  const Refresh refreshed = std::exchange(refreshed_, {});
  sequences.behind_refresh = refreshed.flow == &flow.flow() && refreshed.layer == call.layer && !plan.graph.eviction;
  if (left_to_selection_.flow == &flow.flow()) {  // each sequence writes to one page
    sequences.stale = {.count = shape.sequences, .pages = arrays.touched_pages + first, .tokens = arrays.touched_tokens + first};
    if (plan.has_field_pages()) sequences.stale.fields = of_fields.touched_pages + first;
  }
  const FlowBlocks blocks = blocks_of(pool, call.layer, plan, batch.field_group);
  if (call.probe == nullptr) {  // nobody sees what was selected
    const FlowAttention attention{.attention = pool.decode_attention(call.layer),
                                  .query = static_cast<const uint16_t*>(q.data) + batch.query_indptr[first] * q.stride,
                                  .query_stride = q.stride,
                                  .out = static_cast<uint16_t*>(out.data) + batch.query_indptr[first] * out.stride,
                                  .scale = call.scale};
    if (flow.flow().attend(blocks, sequences, flow.page_counters(), attention, stream_.get())) return;
  }
  // Dense attention would have read those that have left, too: `evict` counts them.
  PageCounters counters = flow.page_counters();
  if (plan.graph.eviction) counters.available = nullptr;
  const bool takes_all = plan.graph.eviction && flow.flow().attends_to_all();
  if (takes_all) counters.attended = nullptr;
  FlowResult result;
  PageLists lists;
  if (takes_all && call.probe == nullptr) {
    flow.reserve(sequences.count, sequences.most_pages);
    lists = all_pages(call.layer, first);
  } else {
    result = flow.flow().select(blocks, sequences, counters, stream_.get());
    lists = {.pages = result.pages,
             .starts = result.starts,
             .tokens = result.tokens,
             .per_head = true,
             .stride = result.stride,
             .mask_indptr = result.mask_indptr,
             .masks = result.masks};
  }
  const bool mass = call.probe != nullptr && call.probe->mass != nullptr;
  if (mass) grow(probe_sums_, 2 * sizeof(float) * shape.sequences * call.query_heads);
  const bool keeps = plan.graph.reads_mass();
  float* const sums = mass ? probe_sums_.as<float>() : keeps ? flow.flow().log_sums(call.layer) : nullptr;
  const TokenLogits logits = keeps ? flow.flow().token_logits(call.layer) : TokenLogits{};
  if (result.cover) {
    if (mass) attend_lists(call, shape, lists, q, probe_output(q), first, sums);
    if (keeps) {
      result.cover->logits = logits;
      result.cover->log_sums = flow.flow().log_sums(call.layer);
    }
    attend_under(call, shape, *result.cover, q, out, first);
  } else {
    attend_lists(call, shape, lists, q, out, first, sums, logits);
  }
  if (call.probe != nullptr) report_flow(call, plan, result, shape, q, first);
  // Last, since it writes to the rows that scores are reported from.
  if (!plan.after.empty()) {
    TokenMasses masses{.numbers = logits.numbers, .stride = logits.stride, .log_sums = sums};
    if (result.cover) masses.log_sums = result.cover->log_sums;
    if (!flow.flow().attends_to_all()) {
      masses.pages = result.attended;
      masses.counts = result.attended_counts;
      masses.page_stride = result.stride;
    }
    // Decode rows that do not come together leave their logits in the same place one after the other.
    const bool are_all = first == 0 && last == batch.sequences();
    if (flow.flow().runs_after_beside() && are_all && call.probe == nullptr) {
      beside_.begin(stream_.get());
      flow.flow().run_after(blocks, sequences, masses, false, false, beside_.stream());
    } else {
      flow.flow().run_after(blocks, sequences, masses, false, true, stream_.get());
    }
  }
}

int CudaDevice::most_seen(int group, int first, int end) const {
  int most = 0;
  for (int s = first; s < end; ++s) most = std::max(most, pass_.seen(group, s));
  return most;
}

const int32_t* CudaDevice::tile_lists(const PrefillAttention& attention, const PrefillShape& shape, const PrefillTables& tables,
                                      int group, int first) {
  tile_lists_.resize(std::max(tile_lists_.size(), static_cast<size_t>(group) + 1));
  TileLists& mine = tile_lists_[group];
  const TileLists::Key key{passes_, first, shape.sequences, shape.group, attention.head_dim()};
  if (mine.key == key) return mine.lists.as<int32_t>();
  grow(mine.lists, attention.list_bytes(shape, tables));
  attention.list_tiles(shape, tables, mine.lists.as<int32_t>(), stream_.get());
  mine.key = key;
  return mine.lists.as<int32_t>();
}

void CudaDevice::attend_prefill(const Attention& call, const Matrix& q, const Matrix& out, int first, int last) {
  const CudaPool& pool = pass_.pool();
  const PassBatch& batch = pass_.batch();
  const int group = pool.group_of(call.layer);
  const GroupPages& kept = pass_.group(group);
  const PassArrays arrays = pass_.arrays(stream_.get(), group);
  const PrefillAttention& attention = pool.prefill_attention(call.layer);
  // Sequences by as many as the workspace takes, or one.
  constexpr size_t kMostWorkspace = size_t{256} << 20;
  for (int end = first; first < last; first = end) {
    const auto pages_up_to = [&](int s) { return kept.page_indptr[s] - kept.page_indptr[first]; };
    ++end;
    while (end < last && attention.widened_bytes(pages_up_to(end + 1)) <= kMostWorkspace) ++end;
    const PrefillShape shape{.sequences = end - first,
                             .rows = batch.query_indptr[end] - batch.query_indptr[first],
                             .group = call.query_heads / pool.kv_heads(),
                             .scale = call.scale,
                             .first_page = pass_.first_page(group, first),
                             .pages = pages_up_to(end),
                             .most_tokens = most_seen(group, first, end)};
    PrefillTables tables{.query_indptr = arrays.query_indptr + first,
                         .lengths = arrays.seen + first,
                         .page_indptr = arrays.page_indptr + first,
                         .page_indices = arrays.page_indices,
                         .slots = pass_.is_regular(group) ? nullptr : arrays.slots,
                         .mask_indptr = kept.has_masks() ? arrays.mask_indptr + first : nullptr,
                         .masks = arrays.masks,
                         .mask_heads = kept.has_masks() ? kept.mask_heads : 1,
                         .stride = kept.row_stride};
    if (tables.slots != nullptr) tables.lists = tile_lists(attention, shape, tables, group, first);
    grow(prefill_workspace_, attention.workspace_bytes(shape, tables));
    attention.run(shape, tables, {q.data, q.stride}, {out.data, out.stride}, prefill_workspace_.data(), stream_.get());
  }
}

}  // namespace sluice::cuda
