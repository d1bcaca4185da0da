#include "scripting/graph/plan.h"

namespace sluice {

namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

PageLayout page_layout(const Geometry& geometry, const std::vector<Field>& fields) {
  PageLayout layout;
  layout.page = geometry.page;
  layout.head_dim = geometry.head_dim;
  layout.kv = geometry.kv;
  const size_t half = align(static_cast<size_t>(geometry.page) * static_cast<size_t>(geometry.head_dim) * size_of(geometry.kv));
  layout.key_offset = 0;
  layout.value_offset = half;
  layout.bytes = 2 * half;
  for (const Field& field : fields) {
    layout.field_offsets.push_back(layout.bytes);
    layout.bytes += align(static_cast<size_t>(elements_per_page(field.shape)) * size_of(field.type));
  }
  return layout;
}

}  // namespace sluice
