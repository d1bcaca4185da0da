#include "scripting/passes/cache_limit.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

void check_cache_size(const Plan& plan) {
  const PageLayout& layout = plan.layout;
  constexpr size_t kMost = 4;  // times K and V, with them
  const size_t keys_and_values = size_t{2} * layout.page * layout.head_dim * size_of(layout.kv);
  if (layout.bytes <= kMost * keys_and_values) return;
  throw FlowError(plan.graph.where,
                  fmt::format("the cached fields make a page {} bytes, {:.1f} times its K and V; at most {} times are judged",
                              layout.bytes, static_cast<double>(layout.bytes) / static_cast<double>(keys_and_values), kMost),
                  "cache less for each page, or in a narrower type: what is cached should be a summary of the page");
}

}  // namespace sluice
