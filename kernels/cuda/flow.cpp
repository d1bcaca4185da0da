#include "kernels/cuda/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "kernels/cuda/flow_state.h"
#include "kernels/cuda/topk.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"

namespace sluice::cuda {
namespace {

constexpr int kLeastChunk = 64;  // pages worth a block

int round_up(int64_t number, int64_t step) { return static_cast<int>((number + step - 1) / step * step); }

}  // namespace

CudaFlow::CudaFlow(Plan plan, int layers, int kv_heads)
    : plan_(std::move(plan)), layout_(plan_), source_(codegen::generate(layout_)), kv_heads_(kv_heads), library_([&] {
        const KernelCache cache;
        return KernelLibrary::compile(source_.text, &cache);
      }()) {
  verify_layers(plan_.graph, layers);
  for (int layer = 0; layer < layers; ++layer) {
    state_layers_.push_back(plan_.graph.layers.is_sparse(layer, layers) ? sparse_layers_++ : -1);
  }
  if (!source_.refresh.name.empty()) refresh_ = load(source_.refresh);
  for (const codegen::GeneratedKernel& kernel : source_.index) index_.push_back(load(kernel));
  if (plan_.graph.selection != kNoNode) find_leaves(plan_.graph.selection);
  if (leaves_.size() > Selection::kMostLeaves) {
    throw FlowError(plan_.graph.where, fmt::format("a union of {} selections; device \"cuda\" joins at most {}", leaves_.size(),
                                                   Selection::kMostLeaves));
  }
}

CudaFlow::Loaded CudaFlow::load(const codegen::GeneratedKernel& how) const {
  Loaded loaded{.how = how, .kernel = library_.kernel(how.name.c_str())};
  const size_t shared = how.global_memory ? 0 : static_cast<size_t>(how.memory_bytes);
  set_shared_memory_limit(loaded.kernel, shared);
  int blocks = 0;
  SLUICE_CHECK_CUDA(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(loaded.kernel), how.threads, shared));
  loaded.resident = std::max(1, blocks) * multiprocessors();
  return loaded;
}

std::unique_ptr<RequestState> CudaFlow::create_state(int max_pages) const {
  if (plan_.graph.states.empty()) return nullptr;
  return std::make_unique<CudaFlowState>(layout_, sparse_layers_, kv_heads_, max_pages);
}

void CudaFlow::find_leaves(NodeId id) {
  const Node& node = layout_.node(id);
  if (node.op != Op::kUnion) {
    if (std::find(leaves_.begin(), leaves_.end(), id) == leaves_.end()) leaves_.push_back(id);
    return;
  }
  for (const NodeId input : node.inputs) find_leaves(input);
}

int64_t CudaFlow::row_stride() const {
  return layout_.fixed_numbers + layout_.row_numbers * capacity_ + (layout_.buffers + 1) * int64_t{codegen::FlowLayout::kPad};
}

void CudaFlow::reserve(int sequences, int pages) {
  if (sequences * kv_heads_ <= most_rows_ && pages <= capacity_) return;
  ++reserved_;
  const std::pair before(most_rows_, capacity_);
  most_rows_ = std::max(most_rows_, sequences * kv_heads_);
  capacity_ = std::max(capacity_, round_up(pages, codegen::FlowLayout::kPad));
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
  grow(lists_, selections * rows * capacity_ * sizeof(int32_t));
  grow(numbers_, (3 * selections + 3) * rows * sizeof(int32_t));
  grow(positions_, rows * capacity_ * sizeof(int32_t));
  grow(pages_, rows * capacity_ * sizeof(int32_t));
}

FlowArguments CudaFlow::arguments_of(const FlowBlocks& blocks) const {
  if (blocks.page_stride > UINT32_MAX) throw InternalError("flow: a page of " + std::to_string(blocks.page_stride) + " bytes");
  FlowArguments arguments{};
  arguments.pages = reinterpret_cast<unsigned char*>(blocks.base);
  arguments.page_stride = static_cast<long long>(blocks.page_stride);
  arguments.block_bytes = static_cast<long long>(blocks.block_bytes);
  arguments.kv_heads = blocks.kv_heads;
  arguments.layer = blocks.layer;
  return arguments;
}

void CudaFlow::launch(const Loaded& loaded, int64_t blocks, const FlowArguments& arguments, Stream stream) const {
  FlowArguments given = arguments;
  if (loaded.how.global_memory) {
    blocks = std::min<int64_t>(blocks, loaded.resident);
    grow(scratch_, static_cast<size_t>(loaded.how.memory_bytes) * loaded.resident);
    given.scratch = scratch_.as<float>();
  }
  cudaLaunchAttribute overlap = overlap_attribute();
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min<int64_t>(blocks, INT32_MAX)));
  config.blockDim = dim3(static_cast<unsigned>(loaded.how.threads));
  config.dynamicSmemBytes = loaded.how.global_memory ? 0 : static_cast<size_t>(loaded.how.memory_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  void* parameters[] = {&given};
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(loaded.kernel), parameters));
}

void CudaFlow::refresh(const FlowBlocks& blocks, const int32_t* pages, const int32_t* tokens, int count, int last_tokens,
                       Stream stream) {
  if (plan_.graph.fields.empty() || count == 0) return;
  refreshed_layer_ = blocks.layer;
  FlowArguments arguments = arguments_of(blocks);
  arguments.touched_pages = pages;
  arguments.touched_tokens = tokens;
  arguments.touched = count;
  arguments.last_tokens = last_tokens;
  launch(refresh_, int64_t{count} * blocks.kv_heads, arguments, stream);
}

int CudaFlow::most_budget(const Node& selection, int pages) const {
  const Attributes& a = selection.attributes;
  const int64_t middle = std::max<int64_t>(0, int64_t{pages} - a.first - a.last);
  if (selection.op == Op::kThreshold) return static_cast<int>(a.max_pages > 0 ? std::min<int64_t>(middle, a.max_pages) : middle);
  const auto share = static_cast<int64_t>(std::ceil(a.ratio * pages));
  const int64_t wanted = std::max(int64_t{a.k} + a.first + a.last, share) - a.first - a.last;
  return static_cast<int>(std::clamp<int64_t>(wanted, 0, middle));
}

const float* CudaFlow::values_of(NodeId id) const {
  const codegen::RowSlot& slot = layout_.slots[static_cast<size_t>(id)];
  return rows_.as<float>() + layout_.fixed_numbers + slot.offset * capacity_ + slot.buffer * codegen::FlowLayout::kPad +
         layout_.shift_of(id);
}

FlowResult CudaFlow::select(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters,
                            Stream stream) {
  const int rows = sequences.count * blocks.kv_heads;
  const int pages = sequences.most_pages;
  if (blocks.kv_heads != kv_heads_) throw InternalError("flow: compiled for another number of KV heads");
  if (!plan_.graph.states.empty() && sequences.states == nullptr) {
    throw InternalError("flow: " + plan_.graph.name + " keeps state and got none");
  }
  reserve(sequences.count, pages);
  const auto selections = static_cast<int>(layout_.selections.size());
  auto* const numbers = numbers_.as<int32_t>();
  const auto numbers_at = [&](int which, int selection) { return numbers + (which * selections + selection) * most_rows_; };

  FlowArguments arguments = arguments_of(blocks);
  arguments.lengths = sequences.lengths;
  arguments.page_indptr = sequences.page_indptr;
  arguments.page_indices = sequences.page_indices;
  arguments.seeds = reinterpret_cast<const unsigned long long*>(sequences.seeds);
  arguments.states = sequences.states;
  arguments.state_layer = std::max(0, state_layers_.at(static_cast<size_t>(blocks.layer)));
  arguments.query = sequences.query;
  arguments.query_stride = sequences.query_stride;
  arguments.query_is_f32 = sequences.query_type == DataType::kF32 ? 1 : 0;
  arguments.rows = rows_.as<float>();
  arguments.row_stride = row_stride();
  arguments.row_count = rows;
  arguments.behind_refresh = refreshed_layer_ == blocks.layer ? 1 : 0;
  refreshed_layer_ = -1;
  arguments.capacity = capacity_;
  arguments.most_pages = pages;
  arguments.number_stride = most_rows_;
  arguments.lengths_out = numbers_at(1, 0);
  arguments.budgets_out = numbers_at(2, 0);
  for (const Loaded& loaded : index_) {
    if (loaded.how.by_row) {
      launch(loaded, rows, arguments, stream);
      continue;
    }
    // Blocks that run at once, as many as there are: each has to find its row before it can read.
    const int64_t per_row = std::max(1, loaded.resident / rows);
    arguments.chunk = std::max(kLeastChunk, round_up((pages + per_row - 1) / per_row, 32));
    launch(loaded, rows * ((int64_t{pages} + arguments.chunk - 1) / arguments.chunk), arguments, stream);
  }

  Selection selection;
  for (const NodeId id : leaves_) {
    const Node& node = layout_.node(id);
    SelectionLeaf& leaf = selection.leaves[selection.leaf_count++];
    leaf.first = node.attributes.first;
    leaf.last = node.attributes.last;
    const int budget = node.op == Op::kWindow ? 0 : most_budget(node, pages);
    if (budget == 0) continue;
    const int number = layout_.selection_index(id);
    TopK top;
    top.scores = values_of(node.inputs[0]) + leaf.first;
    top.stride = row_stride();
    top.rows = rows;
    top.max_length = pages - leaf.first - leaf.last;
    top.lengths = numbers_at(1, number);
    top.budgets = numbers_at(2, number);
    top.max_budget = budget;
    top.selected = lists_.as<int32_t>() + static_cast<int64_t>(number) * most_rows_ * capacity_;
    top.selected_stride = capacity_;
    top.counts = numbers_at(0, number);
    select_top_k(top, plan_top_k(rows, top.max_length, budget, false), stream);
    leaf.list = top.selected;
    leaf.list_stride = capacity_;
    leaf.counts = top.counts;
  }
  if (leaves_.empty()) selection.leaves[selection.leaf_count++].first = pages;  // no selection: every page
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
  finish_selection(selection, stream);

  FlowResult result{.positions = selection.positions,
                    .pages = selection.pages,
                    .starts = selection.starts,
                    .tokens = selection.tokens,
                    .counts = selection.counts,
                    .stride = capacity_};
  if (!layout_.selections.empty()) {
    result.scores = values_of(layout_.selections.back().score);
    result.score_stride = row_stride();
  }
  return result;
}

}  // namespace sluice::cuda
