#include "kernels/cuda/codegen/kernels.h"

#include <algorithm>
#include <map>

#include "kernels/cuda/codegen/embedded.h"
#include "kernels/cuda/codegen/lanes.h"
#include "kernels/cuda/codegen/reductions.h"
#include "kernels/cuda/codegen/values.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int64_t kMostSharedNumbers = 12 * 1024;  // of a block, so that several fit a multiprocessor
constexpr int kMostTilePages = 512;
constexpr int kTileThreads = KernelScope::kTileThreads;
constexpr int kTileBlocks = 3;  // on a multiprocessor, whatever registers that costs
constexpr int kRowThreads = 1024;
constexpr int kRefreshThreads = 128;

/// Where the script wrote it, without anything that could end a comment.
std::string place_in_script(const SourceLocation& where) {
  std::string text = fmt::format("{}:{}", where.file, where.line);
  for (char& letter : text) {
    if (letter < ' ' || letter > '~' || letter == '\\') letter = '?';
  }
  return text;
}

/// Writes one kernel.
class Kernel {
 public:
  Kernel(const FlowLayout& layout, Stage stage, Writer& writer) : layout_(layout), graph_(layout.plan.graph), writer_(writer) {
    scope_.layout = &layout;
    scope_.stage = stage;
    scope_.slots.resize(graph_.nodes.size());
  }

  GeneratedKernel refresh();
  GeneratedKernel tiles(const Launch& launch, int number);
  GeneratedKernel rows(const Launch& launch, int number);

 private:
  using Kind = KernelSlot::Kind;

  const Node& node(NodeId id) const { return layout_.node(id); }
  bool kept(NodeId id) const { return layout_.kept[static_cast<size_t>(id)]; }
  KernelSlot& slot(NodeId id) { return scope_.slots[static_cast<size_t>(id)]; }

  /// Gives query-only values that `ids` need places in `fixed`.
  void place_fixed(const std::vector<NodeId>& ids);
  /// Statements that fill `fixed`.
  void write_fixed();
  /// The memory of a block.
  GeneratedKernel described(const std::string& name, int64_t numbers, int threads);
  void open_kernel(const GeneratedKernel& kernel);
  void declare_memory(const GeneratedKernel& kernel);

  void comment(NodeId id);
  /// A loop of the block's threads over `count` * `per` elements; inside, `p` is the page and `r` the element in it.
  void open_elements(int64_t per, bool paged);
  /// Computes a node for all pages of the tile (or the page, or once) into its place.
  void compute(NodeId id, bool paged);
  void compute_elements(NodeId id, bool paged);
  void compute_lines(NodeId id, bool paged);
  void reduce(NodeId id, const Index& index, const std::string& target);
  /// A value with or without page axis along the page axis: by all threads of the block.
  void compute_along_pages(NodeId id);
  void plan_selection(NodeId id);
  void write_saves();
  std::vector<NodeId> nodes_of(const Launch& launch) const;

  const FlowLayout& layout_;
  const FlowGraph& graph_;
  Writer& writer_;
  KernelScope scope_;
  std::vector<NodeId> fixed_order_;
  int64_t fixed_numbers_ = 0;
  int64_t tile_numbers_ = 0;  // a page
  std::map<NodeId, LaneReduction> lane_reductions_;
};

bool along_pages(const Node& node) { return reads_along_axis(node.op) && node.attributes.axis == Axis::kPage; }

void Kernel::comment(NodeId id) {
  const Node& current = node(id);
  writer_.write(
      fmt::format("// %{} {} {} ({})", id, name_of(current.op), to_string(current.shape), place_in_script(current.where)));
}

std::vector<NodeId> Kernel::nodes_of(const Launch& launch) const {
  std::vector<NodeId> ids = launch.plans;
  for (const int s : launch.steps) {
    const auto& nodes = layout_.plan.index[static_cast<size_t>(s)].nodes;
    ids.insert(ids.end(), nodes.begin(), nodes.end());
  }
  if (launch.saves) ids.insert(ids.end(), graph_.saves.begin(), graph_.saves.end());
  return ids;
}

void Kernel::place_fixed(const std::vector<NodeId>& ids) {
  std::vector<bool> needed(graph_.nodes.size());
  // What is saved is computed before any state changes.
  std::vector<bool> saved(graph_.nodes.size());
  for (const NodeId id : ids) {
    for (const NodeId input : node(id).inputs) {
      needed[static_cast<size_t>(input)] = true;
      if (node(id).op == Op::kSave && node(input).op != Op::kConstant) saved[static_cast<size_t>(input)] = true;
    }
  }
  for (auto i = static_cast<NodeId>(graph_.nodes.size()); i-- > 0;) {
    if (!needed[static_cast<size_t>(i)] || !layout_.query_only[static_cast<size_t>(i)]) continue;
    for (const NodeId input : node(i).inputs) needed[static_cast<size_t>(input)] = true;
    const Op op = node(i).op;
    if (op == Op::kQuery || kept(i) || saved[static_cast<size_t>(i)]) fixed_order_.push_back(i);
  }
  std::reverse(fixed_order_.begin(), fixed_order_.end());
  for (const NodeId id : fixed_order_) {
    slot(id) = {Kind::kFixed, fixed_numbers_};
    fixed_numbers_ += elements_per_page(node(id).shape);
  }
  fixed_numbers_ = (fixed_numbers_ + 3) / 4 * 4;
}

void Kernel::write_fixed() {
  for (const NodeId id : fixed_order_) compute(id, false);
}

GeneratedKernel Kernel::described(const std::string& name, int64_t numbers, int threads) {
  GeneratedKernel kernel;
  kernel.name = name;
  kernel.threads = threads;
  kernel.memory_bytes = numbers * static_cast<int64_t>(sizeof(float));
  kernel.global_memory = numbers > 4 * kMostSharedNumbers;
  return kernel;
}

void Kernel::open_kernel(const GeneratedKernel& kernel) {
  writer_.write("");
  writer_.open("extern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ FlowArguments a)",
               kernel.threads, kernel.threads == kTileThreads ? kTileBlocks : 1, kernel.name);
}

void Kernel::declare_memory(const GeneratedKernel& kernel) {
  if (kernel.memory_bytes == 0) return;
  if (kernel.global_memory) {
    writer_.line("float* const memory = a.scratch + blockIdx.x * {}LL;", kernel.memory_bytes / sizeof(float));
  } else {
    writer_.write("extern __shared__ __align__(16) float memory[];");
  }
  if (fixed_numbers_ > 0) writer_.write("float* const fixed = memory;");
  if (tile_numbers_ > 0) writer_.line("float* const tile = memory + {};", fixed_numbers_);
}

void Kernel::open_elements(int64_t per, bool paged) {
  if (!paged) {
    writer_.open("for (int r = threadIdx.x; r < {}; r += blockDim.x)", per);
    return;
  }
  writer_.open("for (long long e = threadIdx.x; e < count * {}LL; e += blockDim.x)", per);
  writer_.line("const int p = first + static_cast<int>(e / {});", per);
  writer_.line("const int r = static_cast<int>(e % {});", per);
}

void Kernel::reduce(NodeId id, const Index& index, const std::string& target) {
  const Node& current = node(id);
  const Axis axis = current.attributes.axis;
  const NodeId input = current.inputs[0];
  const Shape& from = node(input).shape;
  const Reduction reduction = reduction_of(current.op);
  Index source = index;
  std::string begin = "0";
  std::string end;
  if (is_interleave(current.op)) {
    const int group = current.attributes.group;
    at(source, Axis::kSub) = "0";
    writer_.line("const int entries = {};", held(scope_, from, axis, index));
    writer_.line("const int begin = min({}, (entries - 1) / {}) * {};", at(index, Axis::kSub), group, group);
    writer_.line("const int end = min(begin + {}, entries);", group);
    begin = "begin";
    end = "end";
  } else if (current.op == Op::kContract) {
    // A ragged axis is ragged for the product, whichever operand has the pages.
    Shape product = current.shape;
    product.push_back({axis, from[static_cast<size_t>(find_axis(from, axis))].extent});
    end = held(scope_, product, axis, index);
  } else {
    end = held(scope_, from, axis, index);
  }
  writer_.line("float sum = {}::start();", reduction.op);
  writer_.write("#pragma unroll 8");
  writer_.open("for (int j = {}; j < {}; ++j)", begin, end);
  at(source, axis) = "j";
  Values values(scope_, writer_, "w");
  const std::string x = values.read(input, source);
  const bool product = current.op == Op::kContract;
  writer_.write(reduction.step("sum", product ? fmt::format("{} * {}", x, values.read(current.inputs[1], source)) : x));
  writer_.close();
  const std::string count = is_interleave(current.op) ? "(end - begin)" : end;
  writer_.line("{} = {};", target, reduction.finished("sum", count));
}

void Kernel::compute_elements(NodeId id, bool paged) {
  const Node& current = node(id);
  open_elements(elements_per_page(current.shape), paged);
  Index index = split(writer_, current.shape, "r");
  at(index, Axis::kPage) = "p";
  const std::string target = *place_of(scope_, id, index);
  if (current.op == Op::kConv1d) {
    const Axis axis = current.attributes.axis;
    const auto taps = static_cast<int>(current.attributes.kernel.size());
    const int extent = current.shape[static_cast<size_t>(find_axis(current.shape, axis))].extent;
    writer_.line("const float taps[] = {{{}}};", [&] {
      std::string text;
      for (const float tap : current.attributes.kernel) text.append(text.empty() ? "" : ", ").append(literal(tap));
      return text;
    }());
    writer_.write("float sum = 0;");
    writer_.open("for (int j = 0; j < {}; ++j)", taps);
    writer_.line("const int from = {} + j - {};", at(index, axis), taps / 2);
    writer_.line("if (from < 0 || from >= {}) continue;", extent);
    Index source = index;
    at(source, axis) = "from";
    Values values(scope_, writer_, "w");
    writer_.line("sum += taps[j] * {};", values.read(current.inputs[0], source));
    writer_.close();
    writer_.line("{} = sum;", target);
  } else if (reads_along_axis(current.op)) {
    reduce(id, index, target);
  } else {
    Values values(scope_, writer_);
    writer_.line("{} = {};", target, values.compute(id, index));
  }
  writer_.close();
}

/// Softmax and normalize: a thread for every line of entries.
void Kernel::compute_lines(NodeId id, bool paged) {
  const Node& current = node(id);
  const Axis axis = current.attributes.axis;
  Shape outer = current.shape;
  outer.erase(outer.begin() + find_axis(outer, axis));
  open_elements(elements_per_page(outer), paged);
  Index index = split(writer_, outer, "r");
  at(index, Axis::kPage) = "p";
  at(index, axis) = "j";
  writer_.line("const int entries = {};", held(scope_, current.shape, axis, index));
  const bool softmax = current.op == Op::kSoftmax;
  const auto each = [&](const auto& body) {
    writer_.open("for (int j = 0; j < entries; ++j)");
    Values values(scope_, writer_, "w");
    body(values.read(current.inputs[0], index));
    writer_.close();
  };
  if (softmax) {
    writer_.write("float largest = Max::start();");
    each([&](const std::string& x) { writer_.line("largest = max_of(largest, {});", x); });
  }
  const auto weight = [&](const std::string& x) { return softmax ? fmt::format("expf({} - largest)", x) : x; };
  writer_.write("float total = 0;");
  each([&](const std::string& x) { writer_.line("total += {};", weight(x)); });
  each([&](const std::string& x) { writer_.line("{} = {} / total;", *place_of(scope_, id, index), weight(x)); });
  writer_.close();
}

void Kernel::compute(NodeId id, bool paged) {
  comment(id);
  const auto lanes = lane_reductions_.find(id);
  if (paged && lanes != lane_reductions_.end()) {
    lanes->second.write(writer_);
  } else if (node(id).op == Op::kSoftmax || node(id).op == Op::kNormalize) {
    compute_lines(id, paged);
  } else {
    compute_elements(id, paged);
  }
  writer_.write("__syncthreads();");
}

GeneratedKernel Kernel::refresh() {
  std::vector<NodeId> order;
  for (const NodeId id : layout_.plan.cache) {
    if (!kept(id)) continue;
    slot(id) = {Kind::kTile, tile_numbers_};
    tile_numbers_ += elements_per_page(node(id).shape);
    order.push_back(id);
  }
  GeneratedKernel kernel = described("refresh", tile_numbers_, kRefreshThreads);
  open_kernel(kernel);
  // In this order: whatever starts now may use all but the fields that this kernel writes.
  writer_.write("wait_for_earlier_kernels();");
  writer_.write("let_next_kernel_start();");
  declare_memory(kernel);
  writer_.open("for (int task = blockIdx.x; task < a.touched * a.kv_heads; task += gridDim.x)");
  writer_.write("const int page = task / a.kv_heads;");
  writer_.write("const int head = task % a.kv_heads;");
  writer_.line(
      "const int tokens = a.touched_tokens != nullptr ? a.touched_tokens[page] : page == a.touched - 1 ? a.last_tokens : {};",
      graph_.geometry.page);
  writer_.write("uint8_t* const block = a.pages + a.touched_pages[page] * a.page_stride + head * a.block_bytes;");
  for (const NodeId id : order) compute(id, false);
  for (size_t i = 0; i < graph_.fields.size(); ++i) {
    const Field& field = graph_.fields[i];
    writer_.line("// %{} field ({})", field.node, place_in_script(field.where));
    open_elements(elements_per_page(field.shape), false);
    const Index index = split(writer_, field.shape, "r");
    Values values(scope_, writer_);
    writer_.line("store<{}>(block + {}, r, {});", type_name(field.type), layout_.plan.layout.field_offsets[i],
                 values.read(field.node, index));
    writer_.close();
  }
  writer_.write("__syncthreads();");
  writer_.close();
  writer_.close();
  return kernel;
}

void Kernel::plan_selection(NodeId id) {
  const Attributes& a = node(id).attributes;
  const int number = layout_.selection_index(id);
  comment(id);
  if (node(id).op != Op::kThreshold) {
    writer_.line("if (threadIdx.x == 0) plan_top_k(row, {}, {}, {}, {}LL, {:a});", number, a.first, a.last,
                 int64_t{a.k} + a.first + a.last, a.ratio);
    return;
  }
  writer_.open("");
  Values values(scope_, writer_);
  const std::string bound = values.read(node(id).inputs[1], {});
  writer_.line("const int middle = max(0LL, row.pages - {}LL);", int64_t{a.first} + a.last);
  writer_.write("int passing = 0;");
  writer_.open("for (int p = {} + static_cast<int>(threadIdx.x); p < {} + middle; p += blockDim.x)", a.first, a.first);
  Index index;
  at(index, Axis::kPage) = "p";
  Values scores(scope_, writer_, "w");
  writer_.line("passing += {} > {} ? 1 : 0;", scores.read(node(id).inputs[0], index), bound);
  writer_.close();
  writer_.write("passing = combine_block<Add>(passing);");
  const std::string most =
      a.max_pages > 0 ? fmt::format("max(0, {} - (row.pages - middle))", a.max_pages) : std::string("middle");
  writer_.line("if (threadIdx.x == 0) give_top_k(row, {}, middle, min(passing, {}));", number, most);
  writer_.close();
}

GeneratedKernel Kernel::tiles(const Launch& launch, int number) {
  scope_.in_tile = true;
  const std::vector<NodeId> all = nodes_of(launch);
  place_fixed(all);
  for (const NodeId id : all) {
    if (!has_axis(node(id).shape, Axis::kPage) || !kept(id) || layout_.slots[static_cast<size_t>(id)].stored) continue;
    slot(id) = {Kind::kTile, tile_numbers_};
    tile_numbers_ += elements_per_page(node(id).shape);
  }
  while (scope_.tile_pages < kMostTilePages && fixed_numbers_ + 2 * scope_.tile_pages * tile_numbers_ <= kMostSharedNumbers) {
    scope_.tile_pages *= 2;
  }
  const int64_t numbers = (fixed_numbers_ + scope_.tile_pages * tile_numbers_ + 3) / 4 * 4;
  // Rings follow, one for all reductions, where there is room for them.
  int64_t ring_bytes = 0;
  for (const NodeId id : all) {
    if (!has_axis(node(id).shape, Axis::kPage) || numbers > kMostSharedNumbers) continue;
    std::optional<LaneReduction> lanes = find_lane_reduction(scope_, id);
    if (!lanes) continue;
    ring_bytes = std::max(ring_bytes, lanes->ring_bytes());
    lane_reductions_.emplace(id, std::move(*lanes));
  }
  const bool early = lane_reductions_.size() == 1;
  const auto begin_lanes = [&] {
    if (early) lane_reductions_.begin()->second.begin_tile(writer_);
  };
  GeneratedKernel kernel = described(fmt::format("index_{}", number), numbers + ring_bytes / 4, kTileThreads);
  open_kernel(kernel);
  writer_.write("let_next_kernel_start();");
  declare_memory(kernel);
  if (ring_bytes > 0) writer_.line("const uint32_t ring = shared_address(memory + {});", numbers);
  writer_.line("__shared__ int ids[{}];", scope_.tile_pages);
  writer_.write("const int chunks = (a.most_pages + a.chunk - 1) / a.chunk;");
  writer_.open("for (long long work = blockIdx.x; work < static_cast<long long>(a.row_count) * chunks; work += gridDim.x)");
  writer_.line("const Row row(a, static_cast<int>(work / chunks), {}, {}, {});", graph_.geometry.page, graph_.geometry.group,
               graph_.geometry.head_dim);
  writer_.write("const int begin = static_cast<int>(work % chunks) * a.chunk;");
  writer_.write("if (begin >= row.pages) continue;");
  writer_.write("const int end = min(begin + a.chunk, row.pages);");
  writer_.write("int first = begin;");
  writer_.line("int count = min({}, end - first);", scope_.tile_pages);
  const auto read_ids = [&] {
    writer_.write("for (int i = threadIdx.x; i < count; i += blockDim.x) ids[i] = row.ids[first + i];");
    writer_.write("__syncthreads();");
  };
  read_ids();
  // Page tables are those of the pass, which no kernel writes. Behind a refresh of this layer only the last page is not ready.
  writer_.write(number == 0 ? "if (!a.behind_refresh || end == row.pages) wait_for_earlier_kernels();"
                            : "wait_for_earlier_kernels();");
  begin_lanes();
  write_fixed();
  if (!launch.plans.empty()) {
    writer_.open("if (begin == 0)");
    for (const NodeId id : launch.plans) plan_selection(id);
    writer_.close();
  }
  writer_.open("while (true)");
  for (const int s : launch.steps) {
    for (const NodeId id : layout_.plan.index[static_cast<size_t>(s)].nodes) {
      if (!kept(id) && !layout_.slots[static_cast<size_t>(id)].stored) continue;
      const auto lanes = lane_reductions_.find(id);
      if (!early && lanes != lane_reductions_.end()) lanes->second.begin_tile(writer_);
      compute(id, true);
    }
  }
  writer_.line("first += {};", scope_.tile_pages);
  writer_.write("if (first >= end) break;");
  writer_.line("count = min({}, end - first);", scope_.tile_pages);
  read_ids();
  begin_lanes();
  writer_.close();
  writer_.close();
  writer_.close();
  return kernel;
}

void Kernel::compute_along_pages(NodeId id) {
  const Node& current = node(id);
  const NodeId input = current.inputs[0];
  comment(id);
  const auto over_pages = [&](const Index& index, const auto& body) {
    writer_.open("for (int p = threadIdx.x; p < row.pages; p += blockDim.x)");
    Values values(scope_, writer_, "w");
    body(values, index);
    writer_.close();
  };
  if (current.op == Op::kConv1d) {
    const auto taps = static_cast<int>(current.attributes.kernel.size());
    open_elements(elements_per_page(current.shape), true);
    Index index = split(writer_, current.shape, "r");
    at(index, Axis::kPage) = "p";
    writer_.write("float sum = 0;");
    for (int j = 0; j < taps; ++j) {
      writer_.open("if (p + {} >= 0 && p + {} < row.pages)", j - taps / 2, j - taps / 2);
      Index source = index;
      at(source, Axis::kPage) = fmt::format("(p + {})", j - taps / 2);
      Values values(scope_, writer_, "w");
      writer_.line("sum += {} * {};", literal(current.attributes.kernel[static_cast<size_t>(j)]), values.read(input, source));
      writer_.close();
    }
    writer_.line("{} = sum;", *place_of(scope_, id, index));
    writer_.close();
    writer_.write("__syncthreads();");
    return;
  }
  const bool line = current.op == Op::kSoftmax || current.op == Op::kNormalize;
  // One number (or line of pages) after the other, each by the whole block.
  writer_.open("for (int r = 0; r < {}; ++r)", elements_per_page(current.shape));
  Index index = split(writer_, current.shape, "r");
  at(index, Axis::kPage) = "p";
  if (line) {
    const bool softmax = current.op == Op::kSoftmax;
    if (softmax) {
      writer_.write("float largest = Max::start();");
      over_pages(index,
                 [&](Values& values, const Index& i) { writer_.line("largest = max_of(largest, {});", values.read(input, i)); });
      writer_.write("largest = combine_block<Max>(largest);");
    }
    const auto weight = [&](const std::string& x) { return softmax ? fmt::format("expf({} - largest)", x) : x; };
    writer_.write("float total = 0;");
    over_pages(index, [&](Values& values, const Index& i) { writer_.line("total += {};", weight(values.read(input, i))); });
    writer_.write("total = combine_block<Add>(total);");
    over_pages(index, [&](Values& values, const Index& i) {
      const std::string x = values.read(input, i);
      writer_.line("{} = {} / total;", *place_of(scope_, id, i), weight(x));
    });
  } else {
    const Reduction reduction = reduction_of(current.op);
    writer_.line("float sum = {}::start();", reduction.op);
    over_pages(index, [&](Values& values, const Index& i) {
      const std::string x = values.read(input, i);
      const bool product = current.op == Op::kContract;
      writer_.write(reduction.step("sum", product ? fmt::format("{} * {}", x, values.read(current.inputs[1], i)) : x));
    });
    writer_.line("sum = combine_block<{}>(sum);", reduction.op);
    writer_.line("if (threadIdx.x == 0) {} = {};", *place_of(scope_, id, index), reduction.finished("sum", "row.pages"));
  }
  writer_.close();
  writer_.write("__syncthreads();");
}

void Kernel::write_saves() {
  for (const NodeId id : graph_.saves) {
    const Node& save = node(id);
    const Node& value = node(save.inputs[0]);
    if (value.op == Op::kLoad && value.attributes.field == save.attributes.field) continue;  // it is there
    const auto state = static_cast<size_t>(layout_.state_index(save.attributes.field));
    const StateSlot& at_state = layout_.states[state];
    const Shape& shape = graph_.states[state].shape;
    comment(id);
    open_elements(elements_per_page(shape), at_state.paged);
    Index index = split(writer_, shape, "r");
    at(index, Axis::kPage) = "p";
    Values values(scope_, writer_);
    std::string x = values.read(save.inputs[0], index);
    // Tokens still to come keep the initial value.
    if (at_state.paged && has_axis(shape, Axis::kToken)) {
      x = fmt::format("{} < {} ? {} : {}", at(index, Axis::kToken), held(scope_, shape, Axis::kToken, index), x,
                      literal(graph_.states[state].initial));
    }
    const std::string states = fmt::format("row.states({}, {})", layout_.state_page_numbers, layout_.state_fixed_numbers);
    if (at_state.paged) {
      writer_.line("{}[{}LL * row.state_capacity() + static_cast<long long>(p) * {} + r] = {};", states, at_state.offset,
                   elements_per_page(shape), x);
    } else {
      writer_.line("{}[{}LL * row.state_capacity() + {} + r] = {};", states, layout_.state_page_numbers, at_state.offset, x);
    }
    writer_.close();
  }
}

GeneratedKernel Kernel::rows(const Launch& launch, int number) {
  place_fixed(nodes_of(launch));
  GeneratedKernel kernel = described(fmt::format("index_{}", number), fixed_numbers_, kRowThreads);
  kernel.by_row = true;
  open_kernel(kernel);
  writer_.write("let_next_kernel_start();");
  writer_.write("wait_for_earlier_kernels();");
  declare_memory(kernel);
  writer_.open("for (int index = blockIdx.x; index < a.row_count; index += gridDim.x)");
  writer_.line("const Row row(a, index, {}, {}, {});", graph_.geometry.page, graph_.geometry.group, graph_.geometry.head_dim);
  writer_.write("const int first = 0;");
  writer_.write("const int count = row.pages;");
  write_fixed();
  for (const int s : launch.steps) {
    for (const NodeId id : layout_.plan.index[static_cast<size_t>(s)].nodes) {
      if (!layout_.slots[static_cast<size_t>(id)].stored) continue;
      if (along_pages(node(id))) {
        compute_along_pages(id);
      } else {
        compute(id, has_axis(node(id).shape, Axis::kPage));
      }
    }
  }
  for (const NodeId id : launch.plans) plan_selection(id);
  if (launch.saves) {
    writer_.write("__syncthreads();");
    write_saves();
  }
  writer_.write("__syncthreads();");
  writer_.close();
  writer_.close();
  return kernel;
}

}  // namespace

GeneratedSource generate(const FlowLayout& layout) {
  GeneratedSource source;
  Writer writer;
  if (!layout.plan.graph.fields.empty()) source.refresh = Kernel(layout, Stage::kCache, writer).refresh();
  for (const Launch& launch : layout.launches) {
    const auto number = static_cast<int>(source.index.size());
    Kernel kernel(layout, Stage::kIndex, writer);
    source.index.push_back(launch.by_row ? kernel.rows(launch, number) : kernel.tiles(launch, number));
  }
  source.text = std::string(kArgumentsText) + kPreludeText + "\nnamespace sluice::cuda {\n" + writer.text() +
                "\n}  // namespace sluice::cuda\n";
  return source;
}

}  // namespace sluice::cuda::codegen
