#include "kernels/cuda/flow/flow.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernels/cuda/codegen/refusal.h"
#include "kernels/cuda/flow/state.h"
#include "kernels/cuda/primitives/round_up.h"
#include "kernels/cuda/selection/beside.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/verify.h"

namespace sluice::cuda {
namespace {

void require_accepted(const FlowGraph& graph, const std::optional<codegen::Refusal>& refusal) {
  if (refusal) throw FlowError(graph.where, refusal->what, refusal->hint);
}

/// Refused before anything is written for it.
Plan accepted(Plan plan, int layers) {
  require_accepted(plan.graph, codegen::refusal_of_attention(plan));
  verify_layers(plan.graph, layers);
  return plan;
}

}  // namespace

CudaFlow::CudaFlow(Plan plan, int layers, int kv_heads)
    : plan_(accepted(std::move(plan), layers)),
      layout_(plan_),
      source_(codegen::generate(layout_)),
      kv_heads_(kv_heads),
      library_([&] {
        require_accepted(plan_.graph, codegen::refusal_of(source_));
        const KernelCache cache;
        return KernelLibrary::compile(source_.text, &cache);
      }()) {
  for (int layer = 0; layer < layers; ++layer) {
    state_layers_.push_back(plan_.graph.layers.is_sparse(layer, layers) ? sparse_layers_++ : -1);
  }
  if (!source_.refresh.name.empty()) refresh_ = LoadedKernel::of(library_, source_.refresh);
  for (const codegen::GeneratedKernel& kernel : source_.index) index_.push_back(LoadedKernel::of(library_, kernel));
  for (const codegen::GeneratedKernel& kernel : source_.after) after_.push_back(LoadedKernel::of(library_, kernel));
  if (plan_.graph.eviction) place_token_states();
  after_beside_ = finds_after_beside();
  layers_apart_ = after_beside_ && plan_.graph.eviction && attends_to_all();  // logits are few
  if (!source_.row.name.empty()) load_row_kernel();
  leaves_ = leaf_selections(plan_.graph);
  for (const AttentionSource& source : plan_.graph.sources) {
    for (const NodeId leaf : leaf_selections(plan_.graph, source.opened)) opened_leaves_.push_back(leaf);
  }
}

void CudaFlow::load_row_kernel() {
  row_kernel_ = LoadedRow::of(library_, source_.row.name);
  clusters_at_once_ = row_kernel_.clusters_at_once(kRowThreads);
  whole_rows_ = true;
}

void CudaFlow::load_small_row_kernel() {
  const KernelCache cache;
  small_library_.emplace(KernelLibrary::compile(source_.small_row_text, &cache));
  small_row_kernel_ = LoadedRow::of(*small_library_, source_.row.name);
}

void CudaFlow::load_attending_kernel() {
  const KernelCache cache;
  attending_library_.emplace(KernelLibrary::compile(source_.attending_text, &cache));
  attending_kernel_ = LoadedRow::of(*attending_library_, source_.attending.name);
}

void CudaFlow::load_cluster_attending_kernel() {
  const KernelCache cache;
  cluster_attending_library_.emplace(KernelLibrary::compile(source_.cluster_attending_text, &cache));
  const LoadedRow loaded = LoadedRow::of(*cluster_attending_library_, source_.cluster_attending.name);
  attending_limits_ = {.at_once = loaded.clusters_at_once(kAttenderThreads), .most_shared = loaded.most_shared(1)};
  if (source_.cluster_attending.most_blocks > 1) {
    attending_limits_.in_pairs = loaded.clusters_at_once(kAttenderThreads, 2);
    attending_limits_.most_shared_in_pairs = loaded.most_shared(2);
  }
  cluster_attending_kernel_ = loaded;
}

std::unique_ptr<RequestState> CudaFlow::create_state(int max_pages) const {
  const int hints = hint_room(max_pages);
  if (plan_.graph.states.empty() && hints == 0) return nullptr;
  return std::make_unique<CudaFlowState>(layout_, sparse_layers_, kv_heads_, max_pages, hints);
}

int64_t CudaFlow::row_stride() const {
  return layout_.fixed_numbers + layout_.row_numbers * capacity_ + (layout_.buffers + 1) * int64_t{codegen::FlowLayout::kPad};
}

void CudaFlow::reserve(int sequences, int pages) {
  if (sequences * kv_heads_ <= most_rows_ && pages <= capacity_) return;
  if (whole_rows_ && are_many(sequences * kv_heads_)) {
    if (small_row_kernel_.kernel == nullptr) load_small_row_kernel();
    const bool may_attend = codegen::may_attend(source_.attending, kv_heads_, shared_memory_limit());
    if (attending_kernel_.kernel == nullptr && may_attend) load_attending_kernel();
  }
  const bool may_attend = whole_rows_ && codegen::may_attend(source_.cluster_attending, shared_memory_limit());
  if (may_attend && cluster_attending_kernel_.kernel == nullptr) load_cluster_attending_kernel();
  ++reserved_;
  const std::pair before(most_rows_, capacity_);
  most_rows_ = std::max(most_rows_, sequences * kv_heads_);
  capacity_ = std::max(capacity_, round_up(pages, static_cast<int>(codegen::FlowLayout::kPad)));
  try {
    grow_memory();
  } catch (...) {  // what has grown serves the former size as well
    std::tie(most_rows_, capacity_) = before;
    throw;
  }
}

void CudaFlow::grow_memory() {
  const auto rows = static_cast<size_t>(most_rows_);
  const size_t selections = layout_.selections.size();
  grow(rows_, rows * row_stride() * sizeof(float));
  grow(lists_, selections * rows * static_cast<size_t>(list_stride()) * sizeof(int32_t));
  grow(numbers_, (3 * selections + 3) * rows * sizeof(int32_t));
  grow(positions_, rows * capacity_ * sizeof(int32_t));
  grow(pages_, rows * capacity_ * sizeof(int32_t));
  if (plan_.graph.reads_mass()) {
    const int64_t layers = layers_apart_ ? sparse_layers_ : 1;
    grow(logits_, static_cast<size_t>(layers * log_sums_of_layer() * logit_stride()) * sizeof(float));
    grow(log_sums_, static_cast<size_t>(layers * log_sums_of_layer()) * sizeof(float));
  }
  if (!plan_.attend.is_plain() && plan_.attend.sources.at(1).group_pages > 1) {
    grow(group_logits_, rows * capacity_ * static_cast<size_t>(plan_.graph.geometry.group) * sizeof(float));
    if (!opened_leaves_.empty()) {
      grow(opened_positions_, 2 * rows * capacity_ * sizeof(int32_t));
      grow(opened_numbers_, 3 * rows * sizeof(int32_t));
    }
  }
  if (!plan_.graph.selects_under_masks()) return;
  if (plan_.graph.selects_tokens()) grow(selected_masks_, rows * mask_stride() * sizeof(uint32_t));
  grow(joined_positions_, rows * capacity_ * sizeof(int32_t));
  grow(joined_pages_, rows * capacity_ * sizeof(int32_t));
  grow(joined_numbers_, (4 * rows + 1) * sizeof(int32_t));
  grow(joined_masks_, rows * mask_stride() * sizeof(uint32_t));
}

int64_t CudaFlow::mask_stride() const { return (int64_t{capacity_} * plan_.layout.page + 31) / 32; }

FlowArguments CudaFlow::arguments_of(const FlowBlocks& blocks) const {
  for (const size_t stride : {blocks.page_stride, blocks.field_page_stride}) {
    if (stride > UINT32_MAX) throw InternalError("flow: a page of " + std::to_string(stride) + " bytes");
  }
  FlowArguments arguments{};
  arguments.pages = reinterpret_cast<unsigned char*>(blocks.base);
  arguments.page_stride = static_cast<long long>(blocks.page_stride);
  arguments.block_bytes = static_cast<long long>(blocks.block_bytes);
  arguments.fields = reinterpret_cast<unsigned char*>(blocks.fields);
  arguments.field_page_stride = static_cast<long long>(blocks.field_page_stride);
  arguments.field_block_bytes = static_cast<long long>(blocks.field_block_bytes);
  arguments.kv_heads = blocks.kv_heads;
  arguments.layer = blocks.layer;
  return arguments;
}

void CudaFlow::launch(const LoadedKernel& loaded, int64_t blocks, const FlowArguments& arguments, bool overlaps,
                      Stream stream) const {
  FlowArguments given = arguments;
  if (loaded.how.global_memory) {
    blocks = std::min<int64_t>(blocks, loaded.resident);
    grow(scratch_, static_cast<size_t>(loaded.how.memory_bytes) * loaded.resident);
    given.scratch = scratch_.as<float>();
  }
  cudaLaunchAttribute overlap = overlap_attribute();
  const size_t shared = loaded.how.global_memory ? 0 : static_cast<size_t>(loaded.how.memory_bytes);
  const cudaLaunchConfig_t config =
      configure(grid_of(blocks), loaded.how.threads, shared, {&overlap, overlaps ? 1U : 0U}, stream);
  void* parameters[] = {&given};
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(loaded.kernel), parameters));
}

bool CudaFlow::refresh(const FlowBlocks& blocks, const StaleBlocks& stale, Stream stream) {
  if (plan_.graph.fields.empty() || stale.count == 0) return false;
  FlowArguments arguments = arguments_of(blocks);
  if (plan_.has_field_pages() && (arguments.fields == nullptr || stale.fields == nullptr)) {
    throw InternalError("flow: " + plan_.graph.name + " has its fields in pages of their own and got none");
  }
  arguments.touched_pages = stale.pages;
  arguments.touched_fields = stale.fields;
  arguments.touched_tokens = stale.tokens;
  arguments.touched_by_head = stale.by_head ? 1 : 0;
  arguments.touched = stale.count;
  arguments.last_tokens = stale.last_tokens;
  launch(refresh_, int64_t{stale.count} * blocks.kv_heads, arguments, true, stream);
  return true;
}

const float* CudaFlow::values_of(NodeId id) const {
  const codegen::RowSlot& slot = layout_.slots[static_cast<size_t>(id)];
  return rows_.as<float>() + layout_.fixed_numbers + slot.offset * capacity_ + slot.buffer * codegen::FlowLayout::kPad +
         layout_.shift_of(id);
}

int32_t* CudaFlow::numbers_at(int which, int selection) const {
  return numbers_.as<int32_t>() + (which * static_cast<int64_t>(layout_.selections.size()) + selection) * most_rows_;
}

FlowArguments CudaFlow::index_arguments(const FlowBlocks& blocks, const FlowSequences& sequences) const {
  FlowArguments arguments = arguments_of(blocks);
  arguments.lengths = sequences.lengths;
  arguments.page_indptr = sequences.page_indptr;
  arguments.page_indices = sequences.page_indices;
  arguments.field_indptr = sequences.field_indptr;
  arguments.field_indices = sequences.field_indices;
  arguments.seeds = reinterpret_cast<const unsigned long long*>(sequences.seeds);
  arguments.steps = sequences.steps;
  arguments.states = sequences.states;
  arguments.state_layer = std::max(0, state_layers_.at(static_cast<size_t>(blocks.layer)));
  arguments.query = sequences.query;
  arguments.query_stride = sequences.query_stride;
  arguments.query_is_f32 = sequences.query_type == DataType::kF32 ? 1 : 0;
  arguments.rows = rows_.as<float>();
  arguments.row_stride = row_stride();
  arguments.row_count = sequences.count * blocks.kv_heads;
  arguments.behind_refresh = sequences.behind_refresh ? 1 : 0;
  arguments.capacity = capacity_;
  arguments.most_pages = sequences.most_pages;
  arguments.number_stride = most_rows_;
  arguments.lengths_out = numbers_at(1, 0);
  arguments.budgets_out = numbers_at(2, 0);
  return arguments;
}

void CudaFlow::require(const FlowBlocks& blocks, const FlowSequences& sequences) const {
  if (blocks.kv_heads != kv_heads_) throw InternalError("flow: compiled for another number of KV heads");
  if (!plan_.graph.states.empty() && sequences.states == nullptr) {
    throw InternalError("flow: " + plan_.graph.name + " keeps state and got none");
  }
  if (plan_.has_field_pages() && (blocks.fields == nullptr || sequences.field_indices == nullptr)) {
    throw InternalError("flow: " + plan_.graph.name + " has its fields in pages of their own and got none");
  }
  if (plan_.graph.selects_under_masks() && (sequences.beside_indptr == nullptr || sequences.visible_indptr == nullptr)) {
    throw InternalError("flow: " + plan_.graph.name + " sees parts of pages and was not told which");
  }
}

FlowResult CudaFlow::join(const FlowResult& selected, const Selection& selection, const FlowSequences& sequences, Stream stream) {
  JoinedSelection joined{.selected = selected.positions,
                         .selected_counts = selected.counts,
                         .selected_masks = selected.selected_masks,
                         .sequences = sequences.count,
                         .kv_heads = kv_heads_,
                         .page = plan_.layout.page,
                         .max_pages = sequences.most_pages,
                         .lengths = sequences.lengths,
                         .page_indptr = sequences.page_indptr,
                         .page_indices = sequences.page_indices,
                         .beside_indptr = sequences.beside_indptr,
                         .beside = sequences.beside,
                         .visible_indptr = sequences.visible_indptr,
                         .visible = sequences.visible,
                         .visible_heads = sequences.visible_heads,
                         .positions = joined_positions_.as<int32_t>(),
                         .pages = joined_pages_.as<int32_t>(),
                         .starts = joined_numbers_.as<int32_t>(),
                         .masks = joined_masks_.as<uint32_t>(),
                         .stride = capacity_,
                         .mask_stride = mask_stride(),
                         .attended = selection.attended};
  joined.tokens = joined.starts + most_rows_;
  joined.counts = joined.tokens + most_rows_;
  joined.mask_indptr = joined.counts + most_rows_;
  join_beside(joined, stream);
  return {.positions = selected.positions,
          .counts = selected.counts,
          .pages = joined.pages,
          .starts = joined.starts,
          .tokens = joined.tokens,
          .stride = capacity_,
          .mask_indptr = joined.mask_indptr,
          .masks = joined.masks,
          .selected_masks = selected.selected_masks,
          .mask_stride = mask_stride(),
          .attended = joined.positions,
          .attended_counts = joined.counts,
          .scores = {}};
}

PageGroups CudaFlow::groups_of(const AttendedSource& source) const {
  if (source.group_pages == 1) return {};
  const Node& left_out = layout_.node(source.selection);
  const bool is_tail = left_out.op == Op::kWindow;  // else those that are left out are opened, and so are their groups
  PageGroups groups{.pages = source.group_pages,
                    .counts = source.bias != kNoNode,
                    .shares = source.shares && is_tail,
                    .first = is_tail ? left_out.attributes.first : 0,
                    .last = is_tail ? left_out.attributes.last : 0,
                    .logits = group_logits_.as<float>(),
                    .stride = int64_t{capacity_} * plan_.graph.geometry.group};
  if (opened_leaves_.empty()) return groups;
  groups.opened = opened_positions_.as<int32_t>();
  groups.opened_counts = opened_numbers_.as<int32_t>() + 2 * static_cast<int64_t>(most_rows_);
  groups.opened_stride = capacity_;
  return groups;
}

Cover CudaFlow::cover_of(const FlowBlocks& blocks, const FlowSequences& sequences, const Selection& selection, bool held) const {
  const AttendedSource& source = plan_.attend.sources.at(1);
  const auto values = [&](NodeId id) {
    return held ? rows_.as<float>() + layout_.slots[static_cast<size_t>(id)].offset * capacity_ : values_of(id);
  };
  Cover cover{.opened = {selection.positions, selection.pages, selection.counts, selection.stride},
              .summaries = {.logits = values(source.logits), .row_stride = row_stride()},
              .lengths = sequences.lengths,
              .most_pages = sequences.most_pages,
              .attended = selection.attended};
  PageSummaries& summaries = cover.summaries;
  if (source.values.state >= 0) {
    summaries.states = {.blocks = sequences.states,
                        .first_block = int64_t{state_layer(blocks.layer)} * kv_heads_,
                        .page_numbers = layout_.state_page_numbers,
                        .fixed_numbers = layout_.state_fixed_numbers,
                        .offset = layout_.states[static_cast<size_t>(source.values.state)].offset};
  } else {
    const bool own_pages = plan_.has_field_pages();
    const auto field = static_cast<size_t>(source.values.field);
    summaries.values = (own_pages ? blocks.fields : blocks.base) + plan_.fields().field_offsets[field];
    summaries.type = plan_.graph.fields[field].type;
    summaries.page_stride = own_pages ? blocks.field_page_stride : blocks.page_stride;
    summaries.block_bytes = own_pages ? blocks.field_block_bytes : blocks.block_bytes;
    summaries.page_indptr = own_pages ? sequences.field_indptr : sequences.page_indptr;
    summaries.page_indices = own_pages ? sequences.field_indices : sequences.page_indices;
  }
  if (source.bias != kNoNode) {
    const Node& bias = layout_.node(source.bias);
    if (bias.op == Op::kFill) {
      summaries.common_bias = static_cast<float>(bias.attributes.value);
    } else {
      summaries.bias = values(source.bias);
      summaries.bias_heads = static_cast<int>(elements_per_page(bias.shape));
    }
  }
  cover.groups = groups_of(source);
  if (source.selection == plan_.attend.selection()) return cover;  // no page that is attended to has a summary
  cover.shares = source.shares;
  const Attributes& tail = layout_.node(source.selection).attributes;
  summaries.first = tail.first;
  summaries.last = tail.last;
  return cover;
}

FlowResult CudaFlow::select(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters,
                            Stream stream) {
  const int pages = sequences.most_pages;
  require(blocks, sequences);
  reserve(sequences.count, pages);
  Selection selection;
  selection.sequences = sequences.count;
  selection.kv_heads = blocks.kv_heads;
  selection.page = plan_.layout.page;
  selection.max_pages = pages;
  selection.lengths = sequences.lengths;
  selection.page_indptr = sequences.page_indptr;
  selection.page_indices = sequences.page_indices;
  selection.positions = positions_.as<int32_t>();
  selection.pages = pages_.as<int32_t>();
  selection.stride = capacity_;
  selection.starts = numbers_at(3, 0);
  selection.tokens = selection.starts + most_rows_;
  selection.counts = selection.tokens + most_rows_;
  selection.attended = counters.attended;
  selection.available = counters.available;

  const FlowPath way = path(sequences.count, pages);
  if (way.cluster > 0) {
    launch_whole_rows(way, selection, sequences, index_arguments(blocks, sequences), stream);
  } else {
    FlowArguments arguments = index_arguments(blocks, sequences);
    if (refresh(blocks, sequences.stale, stream)) arguments.behind_refresh = 1;
    launch_steps(selection, sequences, arguments, stream);
  }

  FlowResult result{.positions = selection.positions,
                    .counts = selection.counts,
                    .pages = selection.pages,
                    .starts = selection.starts,
                    .tokens = selection.tokens,
                    .stride = capacity_,
                    .selected_masks = plan_.graph.selects_tokens() ? selected_masks_.as<uint32_t>() : nullptr,
                    .attended = selection.positions,
                    .attended_counts = selection.counts,
                    .scores = {}};
  if (plan_.graph.selects_under_masks()) result = join(result, selection, sequences, stream);
  if (!plan_.attend.is_plain()) result.cover = cover_of(blocks, sequences, selection, way.cluster > 0);
  if (!sequences.wants_scores) return result;
  result.score_stride = row_stride();
  for (const codegen::ScoredSelection& scored : layout_.selections) {
    const codegen::RowSlot& slot = layout_.slots[static_cast<size_t>(scored.score)];
    result.scores.push_back(way.cluster > 0 ? rows_.as<float>() + slot.offset * capacity_ : values_of(scored.score));
  }
  return result;
}

}  // namespace sluice::cuda
