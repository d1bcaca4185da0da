#include "kernels/cuda/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <span>
#include <tuple>
#include <utility>

#include "kernels/cuda/codegen/refusal.h"
#include "kernels/cuda/flow_state.h"
#include "kernels/cuda/topk.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"

namespace sluice::cuda {
namespace {

constexpr int kLeastChunk = 64;           // pages worth a block
constexpr int kMostHelpers = 8;           // blocks that share a row in order to be faster; more do so where it is too long
constexpr int kLeastHeld = 1024;          // pages worth a block that holds a row with others
constexpr size_t kReservedShared = 1024;  // of every block, by the system
constexpr int kLeastOwnRows = 3;          // of a block that attends: with fewer, blocks that fill the GPU do not have many rows
constexpr int kMostHintedRows = 16;       // of more the last selections are not kept

cudaLaunchConfig_t row_launch(const FlowPath& path, int rows, std::span<cudaLaunchAttribute> attributes, Stream stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows * path.cluster));
  config.blockDim = dim3(static_cast<unsigned>(path.threads));
  config.dynamicSmemBytes = path.shared_bytes;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return config;
}

/// Whether top-k is faster with what was selected before. What a threshold may take says nothing of how many pages it took.
bool is_hinted(const Node& selection, int rows, int length, int budget) {
  return selection.op != Op::kThreshold && rows <= kMostHintedRows && budget > 0 &&
         plan_top_k(rows, length, budget, true).method == TopKMethod::kGuessVerifyRefine;
}

/// Pages of a row between those that a selection keeps anyway, which it selects from.
int scores_between(const Node& selection, int pages) { return pages - selection.attributes.first - selection.attributes.last; }

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
  if (!source_.row.name.empty()) load_row_kernel();
  leaves_ = codegen::selections_of(plan_.graph);
  if (const auto refusal = codegen::refusal_of(plan_.graph)) throw FlowError(plan_.graph.where, refusal->what, refusal->hint);
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

void CudaFlow::load_row_kernel() {
  row_kernel_ = load_row_kernel(library_, source_.row.name);
  for (int cluster = 1; cluster <= kMostRowBlocks; cluster *= 2) {
    cudaLaunchAttribute attribute = cluster_attribute(cluster);
    const cudaLaunchConfig_t config =
        row_launch({.cluster = cluster, .shared_bytes = row_kernel_.most_shared(1)}, multiprocessors(), {&attribute, 1}, nullptr);
    SLUICE_CHECK_CUDA(cudaOccupancyMaxActiveClusters(&clusters_at_once_.at(static_cast<size_t>(cluster)),
                                                     reinterpret_cast<const void*>(row_kernel_.kernel), &config));
  }
  whole_rows_ = true;
}

CudaFlow::LoadedRow CudaFlow::load_row_kernel(const KernelLibrary& library, const std::string& name) const {
  LoadedRow loaded{.kernel = library.kernel(name.c_str())};
  cudaFuncAttributes attributes{};
  SLUICE_CHECK_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(loaded.kernel)));
  loaded.own_shared = attributes.sharedSizeBytes;
  set_shared_memory_limit(loaded.kernel, loaded.most_shared(1));
  SLUICE_CHECK_CUDA(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(loaded.kernel), cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  return loaded;
}

void CudaFlow::load_small_row_kernel() {
  const KernelCache cache;
  small_library_.emplace(KernelLibrary::compile(source_.small_row_text, &cache));
  small_row_kernel_ = load_row_kernel(*small_library_, source_.row.name);
}

void CudaFlow::load_attending_kernel() {
  const KernelCache cache;
  attending_library_.emplace(KernelLibrary::compile(source_.attending_text, &cache));
  attending_kernel_ = load_row_kernel(*attending_library_, source_.attending.name);
}

size_t CudaFlow::LoadedRow::most_shared(int blocks) const {
  const size_t reserved = own_shared + kReservedShared;
  const size_t share = (shared_memory_limit() + kReservedShared) / static_cast<size_t>(blocks);
  return share - std::min(share, reserved);
}

std::unique_ptr<RequestState> CudaFlow::create_state(int max_pages) const {
  if (plan_.graph.states.empty()) return nullptr;
  return std::make_unique<CudaFlowState>(layout_, sparse_layers_, kv_heads_, max_pages);
}

int64_t CudaFlow::row_stride() const {
  return layout_.fixed_numbers + layout_.row_numbers * capacity_ + (layout_.buffers + 1) * int64_t{codegen::FlowLayout::kPad};
}

void CudaFlow::reserve(int sequences, int pages) {
  if (sequences * kv_heads_ <= most_rows_ && pages <= capacity_) return;
  if (whole_rows_ && are_many(sequences * kv_heads_)) {
    if (small_row_kernel_.kernel == nullptr) load_small_row_kernel();
    if (attending_kernel_.kernel == nullptr && may_attend()) load_attending_kernel();
  }
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
  reserve_hints();
  grow(positions_, rows * capacity_ * sizeof(int32_t));
  grow(pages_, rows * capacity_ * sizeof(int32_t));
}

void CudaFlow::reserve_hints() {
  if (path(1, capacity_).cluster > 0) return;  // rows that one kernel holds are selected from without
  int most = 0;                                // pages that a selection takes
  for (const codegen::ScoredSelection& selection : layout_.selections) {
    const Node& node = layout_.node(selection.node);
    if (is_hinted(node, 1, capacity_, capacity_)) most = std::max(most, most_budget(node, capacity_));
  }
  if (most <= hint_stride_) return;
  DeviceMemory hints(sparse_layers_ * layout_.selections.size() * kMostHintedRows * most * sizeof(int32_t));
  SLUICE_CHECK_CUDA(cudaMemset(hints.data(), 0xff, hints.bytes()));  // no hints
  hints_ = std::move(hints);
  hint_stride_ = most;
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

bool CudaFlow::refresh(const FlowBlocks& blocks, const int32_t* pages, const int32_t* tokens, int count, int last_tokens,
                       Stream stream) {
  if (plan_.graph.fields.empty() || count == 0) return false;
  FlowArguments arguments = arguments_of(blocks);
  arguments.touched_pages = pages;
  arguments.touched_tokens = tokens;
  arguments.touched = count;
  arguments.last_tokens = last_tokens;
  launch(refresh_, int64_t{count} * blocks.kv_heads, arguments, stream);
  return true;
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

int32_t* CudaFlow::numbers_at(int which, int selection) const {
  return numbers_.as<int32_t>() + (which * static_cast<int64_t>(layout_.selections.size()) + selection) * most_rows_;
}

// Measured on an H200: a row is read fastest by one block where rows fill the device, and by several where they do not, as long
// as each has work and all run at once.
int CudaFlow::row_blocks(int rows, int pages) const {
  int cluster = 1;
  for (int more = 2; more <= kMostRowBlocks; more *= 2) {
    const bool worth =
        more <= kMostHelpers && pages >= more * kLeastHeld && rows <= clusters_at_once_.at(static_cast<size_t>(more));
    if (clusters_at_once_.at(static_cast<size_t>(more)) == 0) break;
    if (!row_fits(cluster, pages) || worth) cluster = more;
  }
  return row_fits(cluster, pages) ? cluster : 0;
}

int CudaFlow::held_pages(int cluster, int pages) { return round_up((pages + cluster - 1) / cluster, kHeldStep); }

bool CudaFlow::row_fits(int cluster, int pages) const {
  return static_cast<size_t>(source_.row.shared_bytes(held_pages(cluster, pages), 1, kRowThreads)) <= row_kernel_.most_shared(1);
}

bool CudaFlow::are_many(int rows) { return rows > kLargeRowBlocks * multiprocessors(); }

FlowPath CudaFlow::path(int sequences, int pages) const {
  const int rows = sequences * kv_heads_;
  FlowPath path{.cluster = whole_rows_ ? row_blocks(rows, pages) : 0};
  if (path.cluster == 0) return path;
  path.held_pages = held_pages(path.cluster, pages);
  const auto bytes = [&](int stages) {
    return static_cast<size_t>(source_.row.shared_bytes(path.held_pages, stages, path.threads));
  };
  // Blocks share a multiprocessor where there are as many: two, or, so that no rows wait for others to end, more and smaller
  // ones.
  const int blocks = path.cluster * rows;
  size_t most = row_kernel_.most_shared(1);
  if (blocks > multiprocessors() && bytes(1) <= row_kernel_.most_shared(kLargeRowBlocks)) {
    most = row_kernel_.most_shared(kLargeRowBlocks);
  }
  if (path.cluster == 1 && are_many(rows)) {
    const size_t share = row_kernel_.most_shared(kSmallRowBlocks);  // small blocks have no more of their own
    path.threads = kSmallRowThreads;
    if (bytes(1) <= share) {
      most = share;
    } else {
      path.threads = kRowThreads;
    }
  }
  while (source_.row.stage_bytes > 0 && path.stages < kMostStages && bytes(path.stages + 1) <= most) ++path.stages;
  path.shared_bytes = bytes(path.stages);
  return path;
}

std::string CudaFlow::describe_path(int sequences, int pages) const {
  const FlowPath way = path(sequences, pages);
  const AttendingPath attending = attending_path(sequences, pages);
  if (way.cluster > 0) {
    return fmt::format("one kernel: {} of {} pages and their scores in shared memory, {} deep",
                       way.cluster == 1 ? fmt::format("a block of {} threads holds a row", way.threads)
                                        : fmt::format("{} blocks hold a row", way.cluster),
                       way.held_pages, way.stages) +
           (attending.blocks > 0 ? fmt::format(", or, where sequences are about as long as each other and nobody asks what is "
                                               "selected, a block of {} threads takes {} rows "
                                               "from scores to attention",
                                               kAttendingThreads, attending.own_rows)
                                 : "");
  }
  if (index_.empty()) return "a list of pages that needs no scores";
  std::string why = source_.why_not_whole_rows;
  if (why.empty()) why = whole_rows_ ? "rows are too long to be held on chip" : "one kernel was not wanted";
  const bool hinted = std::any_of(layout_.selections.begin(), layout_.selections.end(), [&](const auto& selection) {
    const Node& node = layout_.node(selection.node);
    const int budget = most_budget(node, pages);
    return budget <= hint_stride_ && is_hinted(node, sequences * kv_heads_, scores_between(node, pages), budget);
  });
  return fmt::format("{} of its own and top-k{}, scores in device memory: {}",
                     index_.size() == 1 ? "a kernel" : fmt::format("{} kernels", index_.size()),
                     hinted ? ", which begins with what was selected last" : "", why);
}

FlowArguments CudaFlow::index_arguments(const FlowBlocks& blocks, const FlowSequences& sequences) const {
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
  arguments.row_count = sequences.count * blocks.kv_heads;
  arguments.behind_refresh = sequences.behind_refresh ? 1 : 0;
  arguments.capacity = capacity_;
  arguments.most_pages = sequences.most_pages;
  arguments.number_stride = most_rows_;
  arguments.lengths_out = numbers_at(1, 0);
  arguments.budgets_out = numbers_at(2, 0);
  return arguments;
}

void CudaFlow::launch_whole_rows(const FlowPath& path, const Selection& selection, const FlowSequences& sequences,
                                 FlowArguments arguments, Stream stream) {
  if (arguments.row_count - 1 > std::numeric_limits<int32_t>::max() / std::max<int64_t>(selection.stride, 1)) {
    throw InternalError(
        fmt::format("the pages of {} rows of {} pages do not fit 32 bits", arguments.row_count, selection.stride));
  }
  arguments.refreshes = sequences.stale_pages != nullptr ? 1 : 0;
  arguments.behind_refresh |= arguments.refreshes;
  arguments.held_pages = path.held_pages;
  arguments.stages = path.stages;
  if (sequences.wants_scores) arguments.scores = rows_.as<float>();
  arguments.score_stride = row_stride();
  arguments.list_positions = selection.positions;
  arguments.list_pages = selection.pages;
  arguments.list_stride = selection.stride;
  arguments.list_starts = selection.starts;
  arguments.list_tokens = selection.tokens;
  arguments.list_counts = selection.counts;
  arguments.attended = selection.attended;
  arguments.available = selection.available;

  cudaLaunchAttribute attributes[2] = {cluster_attribute(path.cluster), overlap_attribute()};
  const auto used = std::span(attributes).subspan(path.cluster > 1 ? 0 : 1);
  const cudaLaunchConfig_t config = row_launch(path, arguments.row_count, used, stream);
  void* parameters[] = {&arguments};
  const LoadedRow& loaded = path.threads == kRowThreads ? row_kernel_ : small_row_kernel_;
  const void* const kernel = reinterpret_cast<const void*>(loaded.kernel);
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, kernel, parameters));
}

int32_t* CudaFlow::last_selection(int selection, int layer) const {
  const int place = state_layers_.at(static_cast<size_t>(layer));
  if (place < 0) return nullptr;
  const int64_t lists = place * static_cast<int64_t>(layout_.selections.size()) + selection;
  return hints_.as<int32_t>() + lists * kMostHintedRows * hint_stride_;
}

SelectionLeaf CudaFlow::select_leaf(NodeId id, int layer, int rows, int pages, Stream stream) {
  const Node& node = layout_.node(id);
  SelectionLeaf leaf;
  leaf.first = node.attributes.first;
  leaf.last = node.attributes.last;
  const int budget = node.op == Op::kWindow ? 0 : most_budget(node, pages);
  if (budget == 0) return leaf;
  const int number = layout_.selection_index(id);
  TopK top;
  top.scores = values_of(node.inputs[0]) + leaf.first;
  top.stride = row_stride();
  top.rows = rows;
  top.max_length = scores_between(node, pages);
  top.lengths = numbers_at(1, number);
  top.budgets = numbers_at(2, number);
  top.max_budget = budget;
  top.selected = lists_.as<int32_t>() + static_cast<int64_t>(number) * most_rows_ * capacity_;
  top.selected_stride = capacity_;
  const bool helps = budget <= hint_stride_ && is_hinted(node, rows, top.max_length, budget);
  if (int32_t* const last = helps ? last_selection(number, layer) : nullptr; last != nullptr) {
    // Scores change little from step to step (GVR, section 3). Where another request has taken the place of a row, hints are of
    // no use, and do no harm.
    top.selected = last;
    top.selected_stride = hint_stride_;
    top.hints = last;
    top.hint_stride = hint_stride_;
    top.hint_count = budget;
  }
  top.counts = numbers_at(0, number);
  select_top_k(top, plan_top_k(rows, top.max_length, budget, top.hints != nullptr), stream);
  leaf.list = top.selected;
  leaf.list_stride = top.selected_stride;
  leaf.counts = top.counts;
  return leaf;
}

void CudaFlow::launch_steps(const Selection& selection, const FlowSequences& sequences, FlowArguments arguments, Stream stream) {
  const int rows = arguments.row_count;
  const int pages = sequences.most_pages;
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
  Selection joined = selection;
  for (const NodeId id : leaves_) joined.leaves[joined.leaf_count++] = select_leaf(id, arguments.layer, rows, pages, stream);
  if (leaves_.empty()) joined.leaves[joined.leaf_count++].first = pages;  // no selection: every page
  finish_selection(joined, stream);
}

bool CudaFlow::may_attend() const {
  if (source_.attending.name.empty() || own_rows() < kLeastOwnRows) return false;
  constexpr int kLeastPages = 32;
  return static_cast<size_t>(source_.attending.shared_bytes(kLeastPages, own_rows(), 1)) < shared_memory_limit();
}

int CudaFlow::own_rows() const {
  int own = kMostOwnRows;
  while (kv_heads_ % own != 0) --own;
  return own;
}

AttendingPath CudaFlow::attending_path(int sequences, int pages) const {
  const int rows = sequences * kv_heads_;
  if (attending_kernel_.kernel == nullptr || !are_many(rows) || row_blocks(rows, pages) == 0) return {};
  const int own = own_rows();
  const int blocks = rows / own;
  if (blocks > multiprocessors() || blocks < multiprocessors() * 3 / 4) return {};
  int64_t room = 0;
  for (const NodeId id : leaves_) {
    const Node& node = layout_.node(id);
    room += node.attributes.first + node.attributes.last + (node.op == Op::kWindow ? 0 : most_budget(node, pages));
  }
  AttendingPath path{.blocks = blocks,
                     .own_rows = own,
                     .held_pages = round_up(pages, 32),
                     .list_room = static_cast<int>(std::min<int64_t>(pages, room))};
  path.shared_bytes = static_cast<size_t>(source_.attending.shared_bytes(path.held_pages, own, path.list_room));
  return path.shared_bytes <= attending_kernel_.most_shared(1) ? path : AttendingPath{};
}

bool CudaFlow::attend(const FlowBlocks& blocks, const FlowSequences& sequences, const PageCounters& counters,
                      const FlowAttention& attention, Stream stream) {
  require(blocks, sequences);
  reserve(sequences.count, sequences.most_pages);
  // A block has all of its rows to itself, so they are to be about as long as those of others.
  const AttendingPath path = sequences.even ? attending_path(sequences.count, sequences.most_pages) : AttendingPath{};
  if (path.blocks == 0) return false;
  FlowArguments arguments = index_arguments(blocks, sequences);
  arguments.refreshes = sequences.stale_pages != nullptr ? 1 : 0;
  arguments.behind_refresh |= arguments.refreshes;
  arguments.held_pages = path.held_pages;
  arguments.attended = counters.attended;
  arguments.available = counters.available;
  AttentionArguments given{.map = {},
                           .query = static_cast<const uint16_t*>(attention.query),
                           .query_stride = attention.query_stride,
                           .out = static_cast<uint16_t*>(attention.out),
                           .scale = attention.scale * std::numbers::log2e_v<float>,
                           .own_rows = path.own_rows,
                           .list_room = path.list_room};
  const TensorMap& map = attention.attention.map();
  static_assert(sizeof(map.bytes) == sizeof(given.map));
  std::memcpy(given.map, map.bytes, sizeof(given.map));
  cudaLaunchAttribute overlap = overlap_attribute();
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(path.blocks));
  config.blockDim = dim3(kAttendingThreads);
  config.dynamicSmemBytes = path.shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  void* parameters[] = {&given, &arguments};
  SLUICE_CHECK_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(attending_kernel_.kernel), parameters));
  return true;
}

void CudaFlow::require(const FlowBlocks& blocks, const FlowSequences& sequences) const {
  if (blocks.kv_heads != kv_heads_) throw InternalError("flow: compiled for another number of KV heads");
  if (!plan_.graph.states.empty() && sequences.states == nullptr) {
    throw InternalError("flow: " + plan_.graph.name + " keeps state and got none");
  }
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
    if (sequences.stale_pages != nullptr &&
        refresh(blocks, sequences.stale_pages, sequences.stale_tokens, sequences.count, 0, stream)) {
      arguments.behind_refresh = 1;
    }
    launch_steps(selection, sequences, arguments, stream);
  }

  FlowResult result{.positions = selection.positions,
                    .pages = selection.pages,
                    .starts = selection.starts,
                    .tokens = selection.tokens,
                    .counts = selection.counts,
                    .stride = capacity_};
  if (!layout_.selections.empty() && sequences.wants_scores) {
    result.scores = way.cluster > 0 ? rows_.as<float>() : values_of(layout_.selections.back().score);
    result.score_stride = row_stride();
  }
  return result;
}

}  // namespace sluice::cuda
