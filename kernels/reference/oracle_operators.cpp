#include "kernels/reference/oracle_operators.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "scripting/graph/ops.h"

namespace sluice::oracle {

namespace {

constexpr size_t kElementsBetweenPaces = 256;

int extent_of(const Shape& shape, Axis axis) {
  const int position = find_axis(shape, axis);
  return position < 0 ? 1 : shape[position].extent;
}

const Bounded& read(const Tensor& tensor, const Index& index) { return tensor.values[position_of(tensor.shape, index)]; }

Tensor empty(const Shape& shape) {
  size_t count = 1;
  for (const Dimension& dimension : shape) count *= size_t(dimension.extent);
  return {shape, std::vector<Bounded>(count)};
}

Bounded elementwise(const Node& node, std::span<const Tensor* const> inputs, const Index& index) {
  const auto x = [&](size_t i) { return read(*inputs[i], index); };
  switch (node.op) {
    case Op::kAdd:
      return add(x(0), x(1));
    case Op::kSub:
      return sub(x(0), x(1));
    case Op::kMul:
      return mul(x(0), x(1));
    case Op::kDiv:
      return div(x(0), x(1));
    case Op::kMaximum:
      return maximum(x(0), x(1));
    case Op::kMinimum:
      return minimum(x(0), x(1));
    case Op::kRelu:
      return relu(x(0));
    case Op::kSigmoid:
      return sigmoid(x(0));
    case Op::kSilu:
      return silu(x(0));
    case Op::kExp:
      return exponential(x(0));
    case Op::kLog:
      return logarithm(x(0));
    case Op::kAbs:
      return absolute(x(0));
    case Op::kSqrt:
      return root(x(0));
    case Op::kWhere:
      return where(node.attributes.compare, x(0), x(1), x(2), x(3));
    default:
      throw std::logic_error("oracle: not elementwise");
  }
}

/// Reduces the entries first <= j < last along the axis of the node; the others of `index` are fixed.
Bounded reduce(Op op, const Tensor& x, Index index, Axis axis, int first, int last) {
  Sum sum;
  Bounded best{op == Op::kMin || op == Op::kMinInterleave ? HUGE_VAL : -HUGE_VAL, 0};
  for (int j = first; j < last; ++j) {
    at(index, axis) = j;
    const Bounded& entry = read(x, index);
    switch (op) {
      case Op::kMax:
      case Op::kMaxInterleave:
        best = maximum(best, entry);
        break;
      case Op::kMin:
      case Op::kMinInterleave:
        best = minimum(best, entry);
        break;
      case Op::kL2Norm:
      case Op::kL2NormInterleave:
        sum.add(mul(entry, entry));
        break;
      default:
        sum.add(entry);
    }
  }
  switch (op) {
    case Op::kMax:
    case Op::kMaxInterleave:
    case Op::kMin:
    case Op::kMinInterleave:
      return best;
    case Op::kL2Norm:
    case Op::kL2NormInterleave:
      return root(sum.result());
    case Op::kMean:
    case Op::kMeanInterleave:
      return div(sum.result(), {double(last - first), 0});
    default:
      return sum.result();
  }
}

/// Softmax and normalize along one line of entries.
void normalise_line(Op op, const Tensor& x, Tensor& out, Index index, Axis axis, int held) {
  const auto entry = [&](int j) {
    at(index, axis) = j;
    return read(x, index);
  };
  Bounded largest{-HUGE_VAL, 0};
  for (int j = 0; j < held; ++j) largest = maximum(largest, entry(j));
  const auto weight = [&](int j) { return op == Op::kSoftmax ? exponential(sub(entry(j), largest)) : entry(j); };
  Sum total;
  for (int j = 0; j < held; ++j) total.add(weight(j));
  for (int j = 0; j < held; ++j) {
    const Bounded share = div(weight(j), total.result());
    out.values[position_of(out.shape, index)] = share;
  }
}

Bounded convolve(const Node& node, const Tensor& x, Index index, int extent) {
  const Axis axis = node.attributes.axis;
  const int n = int(node.attributes.kernel.size());
  const int centre = at(index, axis);
  Sum sum;
  for (int j = 0; j < n; ++j) {
    const int from = centre + j - n / 2;
    if (from < 0 || from >= extent) continue;
    at(index, axis) = from;
    sum.add(mul({node.attributes.kernel[j], 0}, read(x, index)));
  }
  return sum.result();
}

Bounded kronecker(const Node& node, std::span<const Tensor* const> inputs, Index index) {
  const Axis axis = node.attributes.axis;
  const int n = extent_of(inputs[1]->shape, axis);
  const int both = at(index, axis);
  at(index, axis) = both / n;
  const Bounded a = read(*inputs[0], index);
  at(index, axis) = both % n;
  return mul(a, read(*inputs[1], index));
}

bool inside_slice(const Attributes& attributes, int position, int length) {
  const auto bound = [length](int b) { return b == kToEnd ? length : b < 0 ? b + length : b; };
  return position >= bound(attributes.start) && position < bound(attributes.stop);
}

}  // namespace

int Tokens::held(const Shape& shape, const Index& index, bool cache_stage) const {
  const int extent = extent_of(shape, Axis::kToken);
  if (extent != page) return extent;
  if (cache_stage) return last;
  return has_axis(shape, Axis::kPage) && at(index, Axis::kPage) == pages - 1 ? last : extent;
}

bool Tokens::exists(const Shape& shape, const Index& index) const {
  return !has_axis(shape, Axis::kToken) || at(index, Axis::kToken) < held(shape, index, false);
}

size_t position_of(const Shape& shape, const Index& index) {
  size_t position = 0;
  for (const auto& [axis, extent] : shape) position = position * size_t(extent) + size_t(at(index, axis));
  return position;
}

Tensor apply(const Node& node, const Shape& shape, std::span<const Tensor* const> inputs, const Tokens& tokens,
             const Pace& pace) {
  Tensor out = empty(shape);
  if (node.op == Op::kConstant) {
    out.values[0] = {double(float(node.attributes.value)), 0};
    return out;
  }
  if (node.op == Op::kReshape) {
    out.values = inputs[0]->values;
    return out;
  }
  const Tensor& x = *inputs[0];
  const Axis axis = node.attributes.axis;
  const bool cache_stage = node.stage == Stage::kCache;
  // Entries that exist along the axis that the operator works along.
  const auto held = [&](const Shape& of, const Index& index) {
    return axis == Axis::kToken ? tokens.held(of, index, cache_stage) : extent_of(of, axis);
  };
  for_each_index(shape, [&](const Index& index, size_t position) {
    if (pace && position % kElementsBetweenPaces == 0) pace();
    Bounded& result = out.values[position];
    if (is_interleave(node.op)) {
      Index source = index;
      at(source, Axis::kSub) = 0;
      const int group = node.attributes.group;
      const int last_group = (held(x.shape, index) - 1) / group;
      const int first = std::min(at(index, Axis::kSub), last_group) * group;
      result = reduce(node.op, x, source, axis, first, std::min(first + group, held(x.shape, index)));
      return;
    }
    switch (node.op) {
      case Op::kMean:
      case Op::kMax:
      case Op::kMin:
      case Op::kL2Norm:
      case Op::kSum:
        result = reduce(node.op, x, index, axis, 0, held(x.shape, index));
        return;
      case Op::kContract: {
        Sum sum;
        Index source = index;
        // A ragged axis is ragged for the product, whichever operand has the pages.
        Shape product = shape;
        product.push_back({axis, extent_of(x.shape, axis)});
        for (int j = 0; j < held(product, index); ++j) {
          at(source, axis) = j;
          sum.add(mul(read(x, source), read(*inputs[1], source)));
        }
        result = sum.result();
        return;
      }
      case Op::kKron:
        result = kronecker(node, inputs, index);
        return;
      case Op::kSoftmax:
      case Op::kNormalize:
        if (at(index, axis) == 0) normalise_line(node.op, x, out, index, axis, held(x.shape, index));
        return;
      case Op::kConv1d:
        result = convolve(node, x, index, extent_of(shape, axis));
        return;
      case Op::kTranspose:
        result = read(x, index);
        return;
      case Op::kMaskSlice:
        result = (axis == Axis::kPage ? inside_slice(node.attributes, tokens.first + at(index, axis), tokens.row_pages)
                                      : inside_slice(node.attributes, at(index, axis), held(shape, index)))
                     ? read(x, index)
                     : Bounded{double(float(node.attributes.value)), 0};
        return;
      default:
        result = elementwise(node, inputs, index);
    }
  });
  return out;
}

namespace {

/// Pages by the total order: higher score first, ties to the lower page, NaN last.
std::vector<int32_t> best_first(std::span<const double> scores) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return !std::isnan(scores[a]) && std::isnan(scores[b]);
    return scores[a] > scores[b];
  });
  return order;
}

}  // namespace

std::vector<int32_t> top_k(std::span<const double> scores, const Attributes& attributes) {
  const int pages = int(scores.size());
  const double wanted = std::max(double(attributes.k) + attributes.first + attributes.last, std::ceil(attributes.ratio * pages));
  const auto budget = size_t(std::min(double(pages), wanted));
  std::vector<int32_t> chosen;
  const auto forced = [&](int page) { return page < attributes.first || page >= pages - attributes.last; };
  for (int page = 0; page < pages; ++page) {
    if (forced(page)) chosen.push_back(page);
  }
  for (const int32_t page : best_first(scores)) {
    if (chosen.size() < budget && !forced(page)) chosen.push_back(page);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int32_t> window(int pages, const Attributes& attributes) {
  std::vector<int32_t> chosen;
  for (int page = 0; page < pages; ++page) {
    if (page < attributes.first || page >= pages - attributes.last) chosen.push_back(page);
  }
  return chosen;
}

std::vector<int32_t> threshold(std::span<const double> scores, double bound, const Attributes& attributes) {
  const int pages = int(scores.size());
  std::vector<int32_t> chosen;
  const auto forced = [&](int page) { return page < attributes.first || page >= pages - attributes.last; };
  for (int page = 0; page < pages; ++page) {
    if (forced(page)) chosen.push_back(page);
  }
  const size_t most = attributes.max_pages > 0 ? std::max(chosen.size(), size_t(attributes.max_pages)) : size_t(pages);
  for (const int32_t page : best_first(scores)) {
    if (chosen.size() < most && !forced(page) && scores[page] > bound) chosen.push_back(page);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int32_t> top_p(std::span<const double> weights, double p, const Attributes& attributes) {
  const int pages = int(weights.size());
  std::vector<int32_t> chosen = window(pages, attributes);
  const size_t most = attributes.max_pages > 0 ? std::max(chosen.size(), size_t(attributes.max_pages)) : size_t(pages);
  const auto weight = [&](int32_t page) { return weights[size_t(page)] > 0 ? weights[size_t(page)] : 0.0; };
  double all = 0;
  double taken = 0;
  for (int32_t page = 0; page < pages; ++page) all += weight(page);
  for (const int32_t page : chosen) taken += weight(page);
  for (const int32_t page : best_first(weights)) {
    if (taken >= p * all || chosen.size() >= most || weight(page) == 0) break;
    if (page < attributes.first || page >= pages - attributes.last) continue;
    chosen.push_back(page);
    taken += weight(page);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace sluice::oracle
