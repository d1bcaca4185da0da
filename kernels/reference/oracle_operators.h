#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/reference/oracle.h"

namespace sluice::oracle {

/// A coordinate for every axis.
using Index = std::array<int, kAxes>;

inline int& at(Index& index, Axis axis) { return index[size_t(axis)]; }
inline int at(const Index& index, Axis axis) { return index[size_t(axis)]; }

/// Which pages a tensor has, and which tokens exist: all of whole pages, and the first `last` of the last of its pages.
struct Tokens {
  int page = 0;   // tokens a whole page holds
  int pages = 1;  // of the tensor; 1 in the cache stage
  int last = 0;
  int first = 0;      // the tensor's first page, of those of the row
  int row_pages = 1;  // of the whole row

  /// Tokens along the token axis of a tensor of `shape` at `index`.
  int held(const Shape& shape, const Index& index, bool cache_stage) const;
  bool exists(const Shape& shape, const Index& index) const;
};

/// Calls `visit(index, position)` for every element in storage order.
template <class Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  size_t count = 1;
  for (const Dimension& dimension : shape) count *= size_t(dimension.extent);
  Index index{};
  for (size_t position = 0; position < count; ++position) {
    visit(std::as_const(index), position);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++at(index, shape[i].axis) < shape[i].extent) break;
      at(index, shape[i].axis) = 0;
    }
  }
}
/// Storage position of `index` in a tensor of `shape`; axes that it lacks are ignored.
size_t position_of(const Shape& shape, const Index& index);

/// One operator other than sources, saves and selections.
Tensor apply(const Node& node, const Shape& shape, std::span<const Tensor* const> inputs, const Tokens& tokens,
             const Pace& pace = {});

/// kWindow.
std::vector<int32_t> window(int pages, const Attributes& attributes);
/// kThreshold.
std::vector<int32_t> threshold(std::span<const double> scores, double bound, const Attributes& attributes);
/// kTopP, for the share `p` in place of that of the attributes.
std::vector<int32_t> top_p(std::span<const double> weights, double p, const Attributes& attributes);

}  // namespace sluice::oracle
