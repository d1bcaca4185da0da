#include "kernels/cuda/codegen/lane_sums.h"

#include <bit>

namespace sluice::cuda::codegen {
namespace {

constexpr int kMostUnrolled = 16;  // results a page that are computed side by side
constexpr int kMostSums = 256;     // computations of all of them
constexpr int kMostHoisted = 96;   // numbers of the query that stay in registers

int bytes_of_piece(DataType type) { return kLaneChannels * static_cast<int>(size_of(type)); }

}  // namespace

LaneSums::LaneSums(const KernelScope& scope, NodeId id)
    : scope_(scope), layout_(*scope.layout), node_(layout_.node(id)), how_(reduction_of(node_.op)) {
  results_ = static_cast<int>(elements_per_page(node_.shape));
  for (const Dimension& dimension : node_.shape) {
    if (dimension.axis != Axis::kPage) rest_.push_back(dimension);
  }
  int computations = 1;  // of a result
  for (const NodeId input : node_.inputs) computations += layout_.inlined[static_cast<size_t>(input)];
  is_unrolled_ = results_ <= kMostUnrolled && results_ * computations <= kMostSums;
  hoists_ = is_unrolled_;
  write();
  if (hoisted_numbers_ <= kMostHoisted) return;
  pieces_.clear();
  hoisted_ = Writer();
  hoisted_names_.clear();
  hoists_ = false;
  write();
}

int LaneSums::padded_results() const {
  return is_unrolled_ ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(results_))) : 1;
}

int64_t LaneSums::page_bytes() const {
  int64_t bytes = 0;
  for (const LanePiece& piece : pieces_) bytes += piece.bytes;
  return bytes;
}

void LaneSums::write() {
  text_ = Writer();
  const int count = is_unrolled_ ? results_ : 1;
  text_.line("float sums[{}];", padded_results());
  text_.write("#pragma unroll");
  text_.line("for (float& sum : sums) sum = {}::start();", how_.op);
  text_.write("#pragma unroll");
  text_.open("for (int j = 0; j < {}; ++j)", kLaneChannels);
  Values values(scope_, text_);
  values.set_override([this](NodeId id, const Index& index) { return in_register(id, index); });
  for (int r = 0; r < count; ++r) {
    Index index = is_unrolled_ ? constant_index(r) : named_index();
    at(index, Axis::kPage) = "p";
    at(index, Axis::kDim) = kChannel;
    std::string x = values.read(node_.inputs[0], index);
    if (node_.op == Op::kContract) x = fmt::format("{} * {}", x, values.read(node_.inputs[1], index));
    text_.write(how_.step(fmt::format("sums[{}]", r), x));
  }
  text_.close();
}

Index LaneSums::constant_index(int r) const {
  Index index;
  for (size_t i = rest_.size(); i-- > 0;) {
    at(index, rest_[i].axis) = std::to_string(r % rest_[i].extent);
    r /= rest_[i].extent;
  }
  return index;
}
Index LaneSums::named_index() const {
  Index index;
  for (const Dimension& dimension : rest_) at(index, dimension.axis) = fmt::format("i_{}", name_of(dimension.axis));
  return index;
}

std::optional<std::string> LaneSums::in_register(NodeId id, const Index& index) {
  const Node& node = layout_.node(id);
  if (is_block_part(node.op) || is_line_of_state(node)) return piece_at(node, id, index);
  if (has_axis(node.shape, Axis::kPage)) reads_positions_ = true;
  if (hoists_ && hoisted_numbers_ <= kMostHoisted && layout_.query_only[static_cast<size_t>(id)] && node.op != Op::kConstant)
    return hoisted_at(node, id, index);
  return {};
}

std::string LaneSums::piece_at(const Node& node, NodeId id, Index index) {
  at(index, Axis::kDim) = fmt::format("lane * {}", kLaneChannels);
  const std::string position = linear(node.shape, index);
  const std::string key = fmt::format("{}:{}", id, position);
  size_t k = 0;
  while (k < pieces_.size() && pieces_[k].key != key) ++k;
  if (k == pieces_.size() && is_line_of_state(node)) {
    const std::string base = fmt::format("state_{}", layout_.state_index(node.attributes.field));
    pieces_.push_back(
        {key, type_name(DataType::kF32), fmt::format("{}, {}", base, position), bytes_of_piece(DataType::kF32), id, base});
  } else if (k == pieces_.size()) {
    const BlockPart part = part_of(layout_.plan, node);
    const std::string base = part.in_field_page ? "field_block" : "block";
    pieces_.push_back({key, type_name(part.type), fmt::format("{} + {}, {}", base, part.offset, position),
                       bytes_of_piece(part.type), id, base});
  }
  return fmt::format("part{}.of(j)", k);
}

std::string LaneSums::hoisted_at(const Node& node, NodeId id, const Index& index) {
  const bool channels = has_axis(node.shape, Axis::kDim);
  const std::string key = fmt::format("{}:{}", id, linear(node.shape, index));
  auto known = hoisted_names_.find(key);
  if (known == hoisted_names_.end()) {
    const std::string name = fmt::format("q{}", hoisted_names_.size());
    hoisted_numbers_ += channels ? kLaneChannels : 1;
    hoisted_.line("float {}[{}];", name, channels ? kLaneChannels : 1);
    hoisted_.write("#pragma unroll");
    hoisted_.open("for (int j = 0; j < {}; ++j)", channels ? kLaneChannels : 1);
    Values values(scope_, hoisted_);
    hoisted_.line("{}[j] = {};", name, values.read(id, index));
    hoisted_.close();
    known = hoisted_names_.emplace(key, name).first;
  }
  return fmt::format("{}[{}]", known->second, channels ? "j" : "0");
}

}  // namespace sluice::cuda::codegen
