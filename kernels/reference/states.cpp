#include "kernels/reference/states.h"

#include <algorithm>
#include <utility>

namespace sluice::oracle {

Tensor filled(Shape shape, double value) {
  int64_t count = 1;
  for (const Dimension& dimension : shape) count *= dimension.extent;
  return {std::move(shape), std::vector<Bounded>(size_t(count), Bounded{double(float(value)), 0})};
}

Shape concrete(Shape shape, int pages) {
  for (Dimension& dimension : shape) {
    if (dimension.axis == Axis::kPage) dimension.extent = pages;
  }
  return shape;
}

Tensor state_of_page(const State& state, const States& states, int page) {
  Tensor tensor = filled(concrete(state.shape, 1), state.initial);
  const auto saved = states.find(state.name);
  if (saved == states.end()) return tensor;
  const auto& values = saved->second.values;
  const size_t first = std::min(values.size(), size_t(page) * tensor.values.size());
  std::copy_n(values.begin() + ptrdiff_t(first), std::min(tensor.values.size(), values.size() - first), tensor.values.begin());
  return tensor;
}

Tensor state_for(const State& state, const States& states, int pages) {
  Tensor tensor = filled(concrete(state.shape, pages), state.initial);
  const auto saved = states.find(state.name);
  if (saved == states.end()) return tensor;
  const size_t known = std::min(tensor.values.size(), saved->second.values.size());
  std::copy_n(saved->second.values.begin(), known, tensor.values.begin());
  return tensor;
}

Tensor without_future(Tensor tensor, const State& state, const Tokens& tokens) {
  const bool paged = has_axis(tensor.shape, Axis::kPage);
  for_each_index(tensor.shape, [&](const Index& index, size_t at) {
    if (paged && !tokens.exists(tensor.shape, index)) tensor.values[at] = {double(float(state.initial)), 0};
  });
  return tensor;
}

Tensor with_leaving_pages(const State& state, const States& states, const Tensor& value, int pages) {
  const auto saved = states.find(state.name);
  Tensor tensor = saved == states.end() ? Tensor{} : saved->second;
  tensor.shape = concrete(state.shape, pages);
  size_t numbers = 1;
  for (const Dimension& dimension : tensor.shape) numbers *= size_t(dimension.extent);
  for (size_t i = tensor.values.size(); i < numbers; ++i) tensor.values.push_back(value.values[i]);
  return tensor;
}

void keep(const States& saved, States& states) {
  for (const auto& [name, tensor] : saved) states[name] = tensor;
}

}  // namespace sluice::oracle
