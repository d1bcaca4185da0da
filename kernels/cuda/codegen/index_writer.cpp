#include "kernels/cuda/codegen/index_writer.h"

#include <algorithm>

#include "kernels/cuda/codegen/reductions.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kMostTogether = 8;       // lines of pages that are summed at once ...
constexpr int kMostComputed = 64;      // ... if what they read is computed from no more nodes than these
constexpr int kMostUnrolledTaps = 16;  // of a convolution over pages: the text is one for all of them

bool along_pages(const Node& node) { return reads_along_axis(node.op) && node.attributes.axis == Axis::kPage; }

}  // namespace

std::vector<NodeId> IndexWriter::nodes_of(const Launch& launch) const {
  std::vector<NodeId> ids = launch.plans;
  for (const PlanStep* step : launch.steps) ids.insert(ids.end(), step->nodes.begin(), step->nodes.end());
  ids.insert(ids.end(), launch.saves.begin(), launch.saves.end());
  return ids;
}

void IndexWriter::place_fixed(const std::vector<NodeId>& ids) {
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
    slot(id) = {KernelSlot::Kind::kFixed, fixed_numbers_};
    fixed_numbers_ += elements_per_page(node(id).shape);
  }
  fixed_numbers_ = (fixed_numbers_ + 3) / 4 * 4;
}

void IndexWriter::place_in_tile(const std::vector<NodeId>& ids) {
  for (const NodeId id : ids) {
    if (!has_axis(node(id).shape, Axis::kPage) || !kept(id) || stored(id)) continue;
    slot(id) = {KernelSlot::Kind::kTile, tile_numbers_};
    tile_numbers_ += elements_per_page(node(id).shape);
  }
}

void IndexWriter::write_fixed() {
  for (const NodeId id : fixed_order_) {
    if (node(id).op != Op::kQuery || !queries_are_there_) compute(id, false);
  }
}

void IndexWriter::declare_row(const std::string& index) {
  writer_.line("const Row row(a, {}, {}, {}, {});", index, graph_.geometry.page, graph_.geometry.group, graph_.geometry.head_dim);
}

void IndexWriter::compute_along_pages(NodeId id) {
  const Node& current = node(id);
  const NodeId input = current.inputs[0];
  comment(id);
  if (current.op == Op::kConv1d) {
    convolve_pages(id);
    return;
  }
  const int64_t lines = elements_per_page(current.shape);  // of pages
  const int64_t few = std::max(1, kMostComputed / layout_.inlined[static_cast<size_t>(input)]);
  const int together = static_cast<int>(std::min({lines, few, int64_t{kMostTogether}}));
  const Reduction reduction = reduction_of(current.op);
  writer_.open("for (int begin = 0; begin < {}; begin += {})", lines, together);
  // A thread has all lines of a page side by side, whose values do not wait for each other.
  const auto each_line = [&](const auto& body) {
    writer_.write("#pragma unroll");
    writer_.open("for (int line = 0; line < {}; ++line)", together);
    writer_.write("const int r = begin + line;");
    if (lines % together != 0) writer_.line("if (r >= {}) break;", lines);
    Index index = split(writer_, current.shape, "r");
    at(index, Axis::kPage) = "p";
    body(index);
    writer_.close();
  };
  const auto over_pages = [&](const auto& body) {
    writer_.line("#pragma unroll {}", together < 4 ? 4 : 1);
    writer_.open("for (int p = first + static_cast<int>(threadIdx.x); p < first + count; p += blockDim.x)");
    each_line([&](const Index& index) {
      Values values(scope_, writer_, "w");
      body(values, index);
    });
    writer_.close();
  };
  if (current.op == Op::kSoftmax) {
    writer_.line("float largest[{}];", together);
    writer_.write("for (float& x : largest) x = Max::start();");
    over_pages([&](Values& values, const Index& i) {
      writer_.line("largest[line] = max_of(largest[line], {});", values.read(input, i));
    });
    writer_.write(scope_.holds_row ? "for (float& x : largest) x = largest_in_warp(x);" : "combine_block_each<Max>(largest);");
    writer_.line("float powers[{}] = {{}};", together);
    over_pages([&](Values& values, const Index& i) {
      writer_.line("powers[line] += expf({} - (largest[line] == Max::start() ? 0 : largest[line]));", values.read(input, i));
    });
    writer_.line("float2 sums[{}];", together);
    if (scope_.holds_row) {
      writer_.write("blocks.join_powers(largest, powers, sums);");
    } else {
      writer_.write("combine_block_each<Add>(powers);");
      writer_.write("#pragma unroll");
      writer_.line("for (int line = 0; line < {}; ++line) sums[line] = {{largest[line], powers[line]}};", together);
    }
  } else {
    writer_.line("float sums[{}];", together);
    writer_.line("for (float& sum : sums) sum = {}::start();", reduction.op);
    over_pages([&](Values& values, const Index& i) {
      const std::string x = values.read(input, i);
      const bool product = current.op == Op::kContract;
      writer_.write(reduction.step("sums[line]", product ? fmt::format("{} * {}", x, values.read(current.inputs[1], i)) : x));
    });
    writer_.line("{}_each<{}>(sums);", crew_.combine, reduction.op);
  }
  if (current.op == Op::kSoftmax) {
    writer_.write("#pragma unroll");
    writer_.line("for (int line = 0; line < {}; ++line) sums[line].y = __fdividef(1, sums[line].y);", together);
  }
  if (current.op == Op::kSoftmax || current.op == Op::kNormalize) {
    over_pages([&](Values& values, const Index& i) {
      const std::string x = values.read(input, i);
      writer_.line("{} = {};", *place_of(scope_, id, i),
                   current.op == Op::kSoftmax ? fmt::format("expf({} - sums[line].x) * sums[line].y", x)
                                              : fmt::format("{} / sums[line]", x));
    });
  } else {
    each_line([&](const Index& index) {
      writer_.line("if (threadIdx.x == 0) {} = {};", *place_of(scope_, id, index), reduction.finished("sums[line]", "row.pages"));
    });
  }
  writer_.close();
}

/// A block that has no neighbours reads its own pages.
void IndexWriter::convolve_pages(NodeId id) {
  const Node& current = node(id);
  if (scope_.holds_row) writer_.write("blocks.sync();");
  open_elements(elements_per_page(current.shape), true);
  Index index = split(writer_, current.shape, "r");
  at(index, Axis::kPage) = "p";
  const std::string target = *place_of(scope_, id, index);
  scope_.reads_neighbours = scope_.holds_row;
  const int taps = declare_taps(current);
  writer_.write("float sum = 0;");
  writer_.line("#pragma unroll {}", taps <= kMostUnrolledTaps ? taps : 4);
  writer_.open("for (int j = 0; j < {}; ++j)", taps);
  writer_.line("const int from = p + j - {};", taps / 2);
  writer_.write("if (from < 0 || from >= row.pages) continue;");
  Index source = index;
  at(source, Axis::kPage) = "from";
  Values values(scope_, writer_, "w");
  writer_.line("sum += taps[j] * {};", values.read(current.inputs[0], source));
  writer_.close();
  scope_.reads_neighbours = false;
  writer_.line("{} = sum;", target);
  writer_.close();
}

void IndexWriter::compute_rows(const Launch& launch) {
  bool is_published = true;  // all threads may read what all have computed; else that of their own pages
  const auto publish = [&] {
    if (!is_published) writer_.write(crew_.barrier);
    is_published = true;
  };
  for (const PlanStep* step : launch.steps) {
    for (const NodeId id : step->nodes) {
      if (!stored(id)) continue;
      const bool is_paged = has_axis(node(id).shape, Axis::kPage);
      if (along_pages(node(id))) {
        if (node(id).op == Op::kConv1d) publish();
        compute_along_pages(id);
        is_published = false;
        if (!is_paged || node(id).op == Op::kConv1d) publish();
      } else if (is_paged && scope_.holds_row && elements_per_page(node(id).shape) <= kMostTogether) {
        by_own_pages_ = true;
        compute_unpublished(id, true);
        by_own_pages_ = false;
        is_published = false;
      } else {
        publish();
        compute(id, is_paged);
      }
    }
  }
  publish();
}

void IndexWriter::write_budget(NodeId id) {
  const Attributes& a = node(id).attributes;
  const char* const all = node(id).op == Op::kTopKTokens ? "row.length" : "row.pages";
  writer_.line("const int middle = max(0LL, {} - {}LL);", all, int64_t{a.first} + a.last);
  if (!counts_scores(node(id))) {
    writer_.line("const int budget = budget_of_top_k({}, middle, {}LL, {:a});", all, int64_t{a.k} + a.first + a.last, a.ratio);
    return;
  }
  const std::string most =
      a.max_pages > 0 ? fmt::format("max(0, {} - (row.pages - middle))", a.max_pages) : std::string("middle");
  if (node(id).op == Op::kTopP) {
    writer_.open("const auto weight_of = [&](int p) -> float");
    Index index;
    at(index, Axis::kPage) = "p";
    Values weights(scope_, writer_, "w");
    writer_.line("return {};", weights.read(node(id).inputs[0], index));
    writer_.write("};");
    writer_.line("const int budget = budget_of_top_p(row, {}, middle, {:a}, {}, weight_of);", a.first, a.value, most);
    return;
  }
  Values values(scope_, writer_);
  const std::string bound = values.read(node(id).inputs[1], {});
  writer_.write("int passing = 0;");
  writer_.line("const int from = max(first, {});", a.first);
  writer_.line("const int to = min(first + count, {} + middle);", a.first);
  writer_.open("for (int p = from + static_cast<int>(threadIdx.x); p < to; p += blockDim.x)");
  Index index;
  at(index, Axis::kPage) = "p";
  Values scores(scope_, writer_, "w");
  writer_.line("passing += {} > {} ? 1 : 0;", scores.read(node(id).inputs[0], index), bound);
  writer_.close();
  writer_.line("passing = {}<Add>(passing);", crew_.combine);
  writer_.line("const int budget = min(passing, {});", most);
}

void IndexWriter::plan_selection(NodeId id) {
  comment(id);
  writer_.open("");
  write_budget(id);
  writer_.line("if (threadIdx.x == 0) give_top_k(row, {}, middle, budget);", layout_.selection_index(id));
  writer_.close();
}

std::string IndexWriter::saved_pages(NodeId save) const {
  const StateSlot& state = layout_.states[static_cast<size_t>(layout_.state_index(node(save).attributes.field))];
  return fmt::format("row.states({}, {}) + {}LL * row.state_capacity()", layout_.state_page_numbers, layout_.state_fixed_numbers,
                     state.saved_offset);
}

void IndexWriter::write_saves(const std::vector<NodeId>& saves) {
  for (const NodeId id : saves) {
    const Node& save = node(id);
    const Node& value = node(save.inputs[0]);
    if (value.op == Op::kLoad && value.attributes.field == save.attributes.field) continue;  // it is there
    const auto state = static_cast<size_t>(layout_.state_index(save.attributes.field));
    const StateSlot& at_state = layout_.states[state];
    const Shape& shape = graph_.states[state].shape;
    comment(id);
    const bool is_of_steps = save.stage == Stage::kIndex && !layout_.plan.after.empty();
    if (is_of_steps) writer_.open("if (a.ends_prompt == 0)");
    open_elements(elements_per_page(shape), at_state.paged);
    Index index = split(writer_, shape, "r");
    at(index, Axis::kPage) = "p";
    if (save.attributes.last > 0)
      writer_.line("if (p >= row.behind_tail({}, {}) || ({})[p] != 0) continue;", save.attributes.last, graph_.geometry.page,
                   saved_pages(id));
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
    if (is_of_steps) writer_.close();
  }
  const auto has_tail = [&](NodeId id) { return node(id).attributes.last > 0; };
  if (std::none_of(saves.begin(), saves.end(), has_tail)) return;
  writer_.write(crew_.barrier);
  for (const NodeId id : saves) {
    if (!has_tail(id)) continue;
    open_elements(1, true);
    writer_.line("if (p < row.behind_tail({}, {})) ({})[p] = 1;", node(id).attributes.last, graph_.geometry.page,
                 saved_pages(id));
    writer_.close();
  }
}

}  // namespace sluice::cuda::codegen
