#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/reference/oracle.h"

namespace sluice::oracle {

/// A coordinate for every axis.
using Index = std::array<int, kAxes>;

inline int& at(Index& index, Axis axis) { return index[size_t(axis)]; }
inline int at(const Index& index, Axis axis) { return index[size_t(axis)]; }

/// Which tokens exist: all of whole pages, and the first `last` of the last page.
struct Tokens {
  int page = 0;   // tokens a whole page holds
  int pages = 1;  // 1 in the cache stage
  int last = 0;

  /// Tokens along the token axis of a tensor of `shape` at `index`.
  int held(const Shape& shape, const Index& index, bool cache_stage) const;
  bool exists(const Shape& shape, const Index& index) const;
};

/// Calls `visit` for every element in storage order.
void for_each_index(const Shape& shape, const std::function<void(const Index&, size_t)>& visit);
/// Storage position of `index` in a tensor of `shape`; axes that it lacks are ignored.
size_t position_of(const Shape& shape, const Index& index);

/// One operator other than sources, saves and selections.
Tensor apply(const Node& node, const Shape& shape, std::span<const Tensor* const> inputs, const Tokens& tokens,
             const Pace& pace = {});

/// kThreshold.
std::vector<int32_t> threshold(std::span<const double> scores, double bound, const Attributes& attributes);

}  // namespace sluice::oracle
