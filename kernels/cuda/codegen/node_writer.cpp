#include "kernels/cuda/codegen/node_writer.h"

#include "kernels/cuda/codegen/reductions.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kTokenBatch = 16;  // entries of a growing page that are read at once

}  // namespace

std::string place_in_script(const SourceLocation& where) {
  std::string text = fmt::format("{}:{}", where.file, where.line);
  for (char& letter : text) {
    if (letter < ' ' || letter > '~' || letter == '\\') letter = '?';
  }
  return text;
}

NodeWriter::NodeWriter(const FlowLayout& layout, Stage stage, Writer& writer, const Crew& crew)
    : layout_(layout), graph_(layout.plan.graph), writer_(writer), crew_(crew) {
  scope_.layout = &layout;
  scope_.stage = stage;
  scope_.slots.resize(graph_.nodes.size());
}

void NodeWriter::comment(NodeId id) {
  const Node& current = node(id);
  writer_.write(
      fmt::format("// %{} {} {} ({})", id, name_of(current.op), to_string(current.shape), place_in_script(current.where)));
}

void NodeWriter::open_elements(int64_t per, bool paged) {
  if (!paged) {
    writer_.open("for (int r = {}; r < {}; r += {})", crew_.thread, per, crew_.threads);
    return;
  }
  if (by_own_pages_) {
    writer_.open("for (int p = {0} + static_cast<int>({1}); p < {0} + {2}; p += {3}) for (int r = 0; r < {4}; ++r)", crew_.first,
                 crew_.thread, crew_.count, crew_.threads, per);
    return;
  }
  writer_.open("for ({0} e = {1}; e < {2} * static_cast<{0}>({3}); e += {4})", crew_.element, crew_.thread, crew_.count, per,
               crew_.threads);
  writer_.line("const int p = {} + static_cast<int>(e / {});", crew_.first, per);
  writer_.line("const int r = static_cast<int>(e % {});", per);
}

void NodeWriter::reduce(NodeId id, const Index& index, const std::string& target) {
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
  at(source, axis) = "j";
  const auto entry = [&] {
    Values values(scope_, writer_, "w");
    const std::string x = values.read(input, source);
    const bool product = current.op == Op::kContract;
    return product ? fmt::format("{} * {}", x, values.read(current.inputs[1], source)) : x;
  };
  const auto add = [&](const std::string& x) { return reduction.step("sum", x); };
  if (scope_.stage == Stage::kCache && end == "tokens") {
    reduce_tokens(entry, add);
  } else {
    writer_.line("#pragma unroll {}", unrolled_);
    writer_.open("for (int j = {}; j < {}; ++j)", begin, end);
    writer_.write(add(entry()));
    writer_.close();
  }
  const std::string count = is_interleave(current.op) ? "(end - begin)" : end;
  writer_.line("{} = {};", target, reduction.finished("sum", count));
}

/// Most pages are read as they grow, and a wait costs more than reading some entries again.
void NodeWriter::reduce_tokens(const std::function<std::string()>& entry,
                               const std::function<std::string(const std::string&)>& add) {
  writer_.write("#pragma unroll 1");
  writer_.open("for (int batch = 0; batch < tokens; batch += {})", kTokenBatch);
  writer_.line("float entries[{}];", kTokenBatch);
  writer_.write("#pragma unroll");
  writer_.open("for (int i = 0; i < {}; ++i)", kTokenBatch);
  writer_.write("const int j = min(batch + i, tokens - 1);");
  writer_.line("entries[i] = {};", entry());
  writer_.close();
  writer_.write("#pragma unroll");
  writer_.line("for (int i = 0; i < {}; ++i) pin(entries[i]);", kTokenBatch);
  writer_.write("#pragma unroll");
  writer_.open("for (int i = 0; i < {}; ++i)", kTokenBatch);
  writer_.line("if (batch + i < tokens) {}", add("entries[i]"));
  writer_.close();
  writer_.close();
}

int NodeWriter::declare_taps(const Node& convolution) {
  std::string text;
  for (const float tap : convolution.attributes.kernel) text.append(text.empty() ? "" : ", ").append(literal(tap));
  writer_.line("const float taps[] = {{{}}};", text);
  return static_cast<int>(convolution.attributes.kernel.size());
}

void NodeWriter::convolve(NodeId id, const Index& index, const std::string& target) {
  const Node& current = node(id);
  const Axis axis = current.attributes.axis;
  const int extent = current.shape[static_cast<size_t>(find_axis(current.shape, axis))].extent;
  const int taps = declare_taps(current);
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
}

void NodeWriter::compute_elements(NodeId id, bool paged, const std::string& only) {
  const Node& current = node(id);
  open_elements(elements_per_page(current.shape), paged);
  Index index = split(writer_, current.shape, "r");
  at(index, Axis::kPage) = "p";
  const std::string target = *place_of(scope_, id, index);
  if (!only.empty()) writer_.line("if (!({}({}))) continue;", only, target);
  if (current.op == Op::kConv1d) {
    convolve(id, index, target);
  } else if (reads_along_axis(current.op)) {
    reduce(id, index, target);
  } else {
    Values values(scope_, writer_);
    writer_.line("{} = {};", target, values.compute(id, index));
  }
  writer_.close();
}

/// Softmax and normalize: a thread for every line of entries.
void NodeWriter::compute_lines(NodeId id, bool paged) {
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

void NodeWriter::compute(NodeId id, bool paged) {
  compute_unpublished(id, paged);
  writer_.write(crew_.barrier);
}

void NodeWriter::compute_unpublished(NodeId id, bool paged) {
  comment(id);
  if (node(id).op == Op::kSoftmax || node(id).op == Op::kNormalize) {
    compute_lines(id, paged);
  } else {
    compute_elements(id, paged);
  }
}

}  // namespace sluice::cuda::codegen
