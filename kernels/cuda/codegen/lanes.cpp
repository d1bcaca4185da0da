#include "kernels/cuda/codegen/lanes.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/cuda/codegen/reductions.h"
#include "scripting/graph/ops.h"

namespace sluice::cuda::codegen {
namespace {

constexpr int kChannels = 8;       // of a lane
constexpr int kMostUnrolled = 16;  // results a page that are computed side by side
constexpr int kMostHoisted = 96;   // numbers of the query that stay in registers
constexpr int kMostInFlight = 8;   // pieces that a lane asks for before it uses the first

bool is_block_part(Op op) { return op == Op::kField || op == Op::kKey || op == Op::kValue; }

bool is_elementwise(Op op) { return is_unary_elementwise(op) || is_binary_elementwise(op) || op == Op::kWhere; }

/// Where a part of a block begins, and how its numbers are stored.
struct BlockPart {
  size_t offset = 0;
  DataType type = DataType::kBF16;
};

BlockPart part_of(const Plan& plan, const Node& node) {
  if (node.op == Op::kKey) return {plan.layout.key_offset, plan.layout.kv};
  if (node.op == Op::kValue) return {plan.layout.value_offset, plan.layout.kv};
  for (size_t i = 0; i < plan.graph.fields.size(); ++i) {
    if (plan.graph.fields[i].name == node.attributes.field) return {plan.layout.field_offsets[i], plan.graph.fields[i].type};
  }
  throw InternalError("flow: no field \"" + node.attributes.field + "\"");
}

/// Whether node `id` may be part of the expression that is reduced; `blocks` counts the parts of blocks in it.
bool fits(const KernelScope& scope, NodeId id, int dim, int& blocks) {
  const FlowLayout& layout = *scope.layout;
  const Node& node = layout.node(id);
  const auto at = static_cast<size_t>(id);
  if (node.op == Op::kConstant || layout.query_only[at]) return true;
  const bool placed = layout.slots[at].stored || scope.slots[at].kind != KernelSlot::Kind::kNone;
  if (placed) return !has_axis(node.shape, Axis::kDim);
  if (is_block_part(node.op)) {
    ++blocks;
    return !node.shape.empty() && node.shape.back() == Dimension{Axis::kDim, dim};
  }
  if (is_source(node.op)) return !has_axis(node.shape, Axis::kDim);
  if (!is_elementwise(node.op)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) { return fits(scope, input, dim, blocks); });
}

/// Writes the loops of one reduction.
class LaneWriter {
 public:
  LaneWriter(const KernelScope& scope, const LaneReduction& reduction, Writer& writer)
      : scope_(scope), layout_(*scope.layout), node_(layout_.node(reduction.node)), reduction_(reduction), writer_(writer) {
    how_ = reduction_of(node_.op);
    for (const Dimension& dimension : node_.shape) {
      if (dimension.axis != Axis::kPage) rest_.push_back(dimension);
    }
  }

  void write() {
    const bool unrolled = reduction_.results <= kMostUnrolled;
    Writer body;
    hoists_ = unrolled;
    write_sums(body, unrolled);
    if (hoisted_numbers_ > kMostHoisted) {
      forget();
      hoists_ = false;
      body = Writer();
      write_sums(body, unrolled);
    }
    const int ahead = std::clamp(kMostInFlight / std::max(1, static_cast<int>(parts_.size())), 1, kMostInFlight);
    writer_.open("");
    writer_.line("const int lane = threadIdx.x % {};", reduction_.lanes);
    writer_.line("const int team = threadIdx.x / {};", reduction_.lanes);
    writer_.line("const int teams = blockDim.x / {};", reduction_.lanes);
    writer_.append(hoisted_);
    writer_.open("for (int begin_page = 0; begin_page < count; begin_page += {} * teams)", unrolled ? ahead : 1);
    if (unrolled) {
      for (size_t k = 0; k < parts_.size(); ++k) writer_.line("Eight<{}> part{}[{}];", parts_[k].type, k, ahead);
      open_pages(ahead);
      if (!parts_.empty()) {
        writer_.open("if (i < count)");
        writer_.write("const uint8_t* const block = row.block(ids[i]);");
        for (size_t k = 0; k < parts_.size(); ++k) writer_.line("part{}[u].read({});", k, parts_[k].from);
        writer_.close();
      }
      writer_.close();
      open_pages(ahead);
      writer_.append(body);
      write_results();
      writer_.close();
    } else {
      open_pages(1);
      writer_.write("const uint8_t* const block = row.block(ids[min(i, count - 1)]);");
      writer_.open("for (int r = 0; r < {}; ++r)", reduction_.results);
      loop_index_ = split(writer_, rest_, "r");
      for (size_t k = 0; k < parts_.size(); ++k) {
        writer_.line("Eight<{}> part{}[1];", parts_[k].type, k);
        writer_.line("part{}[u].read({});", k, parts_[k].from);
      }
      writer_.append(body);
      write_results();
      writer_.close();
      writer_.close();
    }
    writer_.close();
    writer_.close();
  }

 private:
  struct Part {
    std::string key, type, from;
  };

  void open_pages(int ahead) {
    writer_.write("#pragma unroll");
    writer_.open("for (int u = 0; u < {}; ++u)", ahead);
    writer_.write("const int i = begin_page + u * teams + team;");
    writer_.write("const int p = first + min(i, count - 1);");
  }

  void forget() {
    parts_.clear();
    hoisted_ = Writer();
    hoisted_names_.clear();
    hoisted_numbers_ = 0;
  }

  /// Sums of this lane's channels: sums[results].
  void write_sums(Writer& body, bool unrolled) {
    const int count = unrolled ? reduction_.results : 1;
    body.line("float sums[{}];", static_cast<int>(std::bit_ceil(static_cast<unsigned>(count))));
    body.write("#pragma unroll");
    body.line("for (float& sum : sums) sum = {}::start();", how_.op);
    body.write("#pragma unroll");
    body.open("for (int j = 0; j < {}; ++j)", kChannels);
    Values values(scope_, body);
    values.set_override([this](NodeId id, const Index& index) { return in_register(id, index); });
    for (int r = 0; r < count; ++r) {
      Index index = unrolled ? constant_index(r) : named_index();
      at(index, Axis::kPage) = "p";
      at(index, Axis::kDim) = kChannel;
      std::string x = values.read(node_.inputs[0], index);
      if (node_.op == Op::kContract) x = fmt::format("{} * {}", x, values.read(node_.inputs[1], index));
      body.write(how_.step(fmt::format("sums[{}]", r), x));
    }
    body.close();
  }

  Index constant_index(int r) const {
    Index index;
    for (size_t i = rest_.size(); i-- > 0;) {
      at(index, rest_[i].axis) = std::to_string(r % rest_[i].extent);
      r /= rest_[i].extent;
    }
    return index;
  }
  /// The names that `split` gives.
  Index named_index() const {
    Index index;
    for (const Dimension& dimension : rest_) at(index, dimension.axis) = fmt::format("i_{}", name_of(dimension.axis));
    return index;
  }

  std::optional<std::string> in_register(NodeId id, const Index& index) {
    const Node& node = layout_.node(id);
    if (is_block_part(node.op)) return part_at(node, id, index);
    if (hoists_ && layout_.query_only[static_cast<size_t>(id)] && node.op != Op::kConstant) return hoisted_at(node, id, index);
    return {};
  }

  std::string part_at(const Node& node, NodeId id, Index index) {
    at(index, Axis::kDim) = fmt::format("lane * {}", kChannels);
    const BlockPart part = part_of(layout_.plan, node);
    const std::string position = linear(node.shape, index);
    const std::string key = fmt::format("{}:{}", id, position);
    size_t k = 0;
    while (k < parts_.size() && parts_[k].key != key) ++k;
    if (k == parts_.size()) parts_.push_back({key, type_name(part.type), fmt::format("block + {}, {}", part.offset, position)});
    return fmt::format("part{}[u].of(j)", k);
  }

  std::string hoisted_at(const Node& node, NodeId id, const Index& index) {
    const bool channels = has_axis(node.shape, Axis::kDim);
    const std::string key = fmt::format("{}:{}", id, linear(node.shape, index));
    auto known = hoisted_names_.find(key);
    if (known == hoisted_names_.end()) {
      const std::string name = fmt::format("q{}", hoisted_names_.size());
      hoisted_numbers_ += channels ? kChannels : 1;
      hoisted_.line("float {}[{}];", name, channels ? kChannels : 1);
      hoisted_.write("#pragma unroll");
      hoisted_.open("for (int j = 0; j < {}; ++j)", channels ? kChannels : 1);
      Values values(scope_, hoisted_);
      hoisted_.line("{}[j] = {};", name, values.read(id, index));
      hoisted_.close();
      known = hoisted_names_.emplace(key, name).first;
    }
    return fmt::format("{}[{}]", known->second, channels ? "j" : "0");
  }

  /// Combines the lanes' sums and stores what they give.
  void write_results() {
    const bool unrolled = reduction_.results <= kMostUnrolled;
    const int padded = unrolled ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(reduction_.results))) : 1;
    const int together = std::min(padded, reduction_.lanes);
    const int apart = reduction_.lanes / together;
    for (int begin = 0; begin < padded; begin += together) {
      writer_.open("");
      writer_.line("float some[{}];", together);
      writer_.write("#pragma unroll");
      writer_.line("for (int k = 0; k < {}; ++k) some[k] = sums[{} + k];", together, begin);
      writer_.line("const float sum = combine_lanes<{}, {}, {}>(some);", how_.op, together, reduction_.lanes);
      Index index;
      if (unrolled) {
        writer_.line("const int r = {} + lane / {};", begin, apart);
        writer_.open("if (lane % {} == 0 && i < count && r < {})", apart, reduction_.results);
        index = split(writer_, rest_, "r");
      } else {
        writer_.open("if (lane == 0 && i < count)");
        index = loop_index_;
      }
      at(index, Axis::kPage) = "p";
      const int dim = reduction_.lanes * kChannels;
      writer_.line("{} = {};", *place_of(scope_, reduction_.node, index), how_.finished("sum", std::to_string(dim)));
      writer_.close();
      writer_.close();
    }
  }

  static constexpr const char* kChannel = "(lane * 8 + j)";

  const KernelScope& scope_;
  const FlowLayout& layout_;
  const Node& node_;
  LaneReduction reduction_;
  Writer& writer_;
  Reduction how_;
  Shape rest_;  // of the result, without pages
  Index loop_index_;
  std::vector<Part> parts_;
  bool hoists_ = false;
  Writer hoisted_;
  std::map<std::string, std::string> hoisted_names_;
  int hoisted_numbers_ = 0;
};

}  // namespace

std::optional<LaneReduction> find_lane_reduction(const KernelScope& scope, NodeId id) {
  const Node& node = scope.layout->node(id);
  const bool reduces = is_reduction(node.op) || node.op == Op::kContract;
  if (!reduces || node.attributes.axis != Axis::kDim || !has_axis(node.shape, Axis::kPage)) return {};
  const Shape& from = scope.layout->node(node.inputs[0]).shape;
  const int place = find_axis(from, Axis::kDim);
  if (place < 0) return {};
  const int dim = from[static_cast<size_t>(place)].extent;
  const int lanes = dim / kChannels;
  if (dim % kChannels != 0 || lanes > 32 || !std::has_single_bit(static_cast<unsigned>(lanes))) return {};
  int blocks = 0;
  for (const NodeId input : node.inputs) {
    if (!fits(scope, input, dim, blocks)) return {};
  }
  if (blocks == 0) return {};
  return LaneReduction{id, lanes, static_cast<int>(elements_per_page(node.shape))};
}

void write_lane_reduction(const KernelScope& scope, const LaneReduction& reduction, Writer& writer) {
  LaneWriter(scope, reduction, writer).write();
}

}  // namespace sluice::cuda::codegen
