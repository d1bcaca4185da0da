#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "scripting/graph/plan.h"

namespace sluice {

/// All pages of one engine: [layer, page, kv_head] blocks of `PageLayout::bytes`.
class Pool {
 public:
  virtual ~Pool() = default;
  virtual const PageLayout& layout() const = 0;
  virtual int layers() const = 0;
  virtual int pages() const = 0;
  virtual int kv_heads() const = 0;
  virtual size_t bytes() const = 0;
  /// Copies page sources[i] over page targets[i] in every layer and head (copy on write of shared pages). All at once: no page
  /// may be a target twice, or a target and the source of another.
  virtual void copy_pages(std::span<const int32_t> sources, std::span<const int32_t> targets) = 0;
  void copy_page(int32_t source, int32_t target) { copy_pages({&source, 1}, {&target, 1}); }
  /// Copies the first `tokens` tokens of K and V of the pages into `keys`, `values`: float32 [layers, tokens, kv_heads, dim].
  virtual void read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const = 0;
  /// The inverse of `read`: stores the first `tokens` tokens of K and V, rounded to the pool's type. Cached fields are
  /// untouched: `Device::refresh_pages` recomputes them.
  virtual void write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) = 0;
};

}  // namespace sluice
