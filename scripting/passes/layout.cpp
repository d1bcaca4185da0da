#include <utility>

#include "scripting/graph/plan.h"

namespace sluice {

namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

PageLayout empty_layout(const Geometry& geometry) {
  PageLayout layout;
  layout.page = geometry.page;
  layout.head_dim = geometry.head_dim;
  layout.kv = geometry.kv;
  return layout;
}

void add_fields(const std::vector<Field>& fields, PageLayout& layout) {
  for (const Field& field : fields) {
    layout.field_offsets.push_back(layout.bytes);
    layout.bytes += align(static_cast<size_t>(elements_per_page(field.shape)) * size_of(field.type));
  }
}

}  // namespace

PageLayout page_layout(const Geometry& geometry, const std::vector<Field>& fields) {
  PageLayout layout = empty_layout(geometry);
  const size_t half = align(static_cast<size_t>(geometry.page) * static_cast<size_t>(geometry.head_dim) * size_of(geometry.kv));
  layout.key_offset = 0;
  layout.value_offset = half;
  layout.bytes = 2 * half;
  add_fields(fields, layout);
  return layout;
}

PageLayout field_page_layout(const Geometry& geometry, const std::vector<Field>& fields) {
  PageLayout layout = empty_layout(geometry);
  layout.has_tokens = false;
  add_fields(fields, layout);
  return layout;
}

Plan with_field_pages(Plan plan) {
  if (plan.graph.fields.empty()) return plan;
  plan.layout = page_layout(plan.graph.geometry, {});
  plan.field_layout = field_page_layout(plan.graph.geometry, plan.graph.fields);
  return plan;
}

}  // namespace sluice
