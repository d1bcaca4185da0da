#include "host/serving/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

PageLayout choose_layout(const ModelConfig& config, const Plan* plan, const EngineOptions& options) {
  if (plan == nullptr) {
    if (options.page < 8 || options.page > 128 || (options.page & (options.page - 1)) != 0) {
      throw InputError(fmt::format("a page of {} tokens", options.page), "a page holds 8, 16, 32, 64 or 128 tokens");
    }
    return page_layout({config.head_dim, config.group(), options.page, options.kv}, {});
  }
  return plan->layout;
}

int choose_pages(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options) {
  if (options.pages > 0) return options.pages;
  const size_t bytes = layout.bytes * static_cast<size_t>(config.layers) * static_cast<size_t>(config.kv_heads);
  const size_t pages = options.pool_bytes / bytes;
  if (pages == 0) {
    throw InputError(fmt::format("a page pool of {} bytes cannot hold one page of {} bytes", options.pool_bytes, bytes),
                     "make the pool larger");
  }
  return static_cast<int>(std::min<size_t>(pages, 1 << 24));
}

/// The layers without a window first.
std::vector<CacheGroup> groups_of(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options) {
  if (options.windows.size() >= kMostGroups) {
    throw InputError(
        fmt::format("{} windows; at most {} groups of layers are kept apart", options.windows.size() + 1, kMostGroups));
  }
  std::vector<CacheGroup> groups = {{{}, layout}};
  std::vector<bool> has_window(static_cast<size_t>(config.layers), false);
  for (const LayerWindow& window : options.windows) {
    if (window.layers.empty()) throw InputError(fmt::format("a window of {} tokens for no layer", window.tokens));
    if (window.tokens < 1) throw InputError(fmt::format("a window of {} tokens; at least 1 is wanted", window.tokens));
    for (const int layer : window.layers) {
      if (layer < 0 || layer >= config.layers) {
        throw InputError(fmt::format("a window for layer {} of a model of {} layers", layer, config.layers));
      }
      has_window[static_cast<size_t>(layer)] = true;
    }
    groups.push_back({window.layers, layout});
    std::sort(groups.back().layers.begin(), groups.back().layers.end());
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!has_window[static_cast<size_t>(layer)]) groups.front().layers.push_back(layer);
  }
  if (groups.front().layers.empty()) throw InputError("every layer has a window", "leave a layer that keeps all tokens");
  return groups;
}

/// Slabs are as small as memory is read fast: a stretch of pages of a layer fills the larger pages of memory that devices have.
/// They have whole numbers of pages of the group with the most layers. At least `least_slabs`.
PoolMap map_of_slabs(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options, size_t least_slabs) {
  const int pages = choose_pages(config, layout, options);
  constexpr size_t kStretch = size_t{2} << 20;
  constexpr size_t kFewSlabs = 32;  // for small pools stretches are shorter
  std::vector<CacheGroup> groups = groups_of(config, layout, options);
  const size_t page_bytes = layout.bytes * static_cast<size_t>(config.kv_heads);
  const size_t bytes = page_bytes * static_cast<size_t>(config.layers) * static_cast<size_t>(pages);
  size_t most_layers = 0;
  for (const CacheGroup& group : groups) most_layers = std::max(most_layers, group.layers.size());
  const size_t row_bytes = page_bytes * most_layers;
  const size_t wanted = std::max(bytes / std::max(row_bytes, most_layers * kStretch), kFewSlabs);
  const size_t slab_bytes = row_bytes * std::max<size_t>(1, bytes / wanted / row_bytes) + page_bytes;  // begin where they may
  const size_t slabs = bytes / slab_bytes;
  if (slabs < std::max(groups.size(), least_slabs)) {
    throw InputError(fmt::format("a page pool of {} bytes cannot hold pages of {} groups of layers", bytes,
                                 std::max(groups.size(), least_slabs)),
                     "make the pool larger");
  }
  return {config.kv_heads, std::move(groups), slab_bytes, static_cast<int>(slabs)};
}

/// By group. No sequence is longer than the model's positions, so no window is.
std::vector<int> windows_of(const ModelConfig& config, const EngineOptions& options) {
  std::vector<int> windows = {0};
  for (const LayerWindow& window : options.windows) windows.push_back(std::min(window.tokens, config.max_positions));
  return windows;
}

}  // namespace

KvCache::KvCache(Device& device, const ModelConfig& config, const PoolMap& map, std::vector<int> windows, bool prefixes)
    : device_(device),
      config_(config),
      pool_(device.create_pool(map)),
      windows_(std::move(windows)),
      pages_(pool_->map(), {.page = pool_->layout().page, .share = prefixes, .windows = windows_}) {}

bool KvCache::takes_fields() const {
  const PoolMap& map = pool_->map();
  if (map.groups() < kMostGroups) return true;
  for (int group = 0; group < map.groups(); ++group) {
    if (!map.has_group(group)) return true;
  }
  return false;
}

FieldPlane::FieldPlane(KvCache& cache, CacheGroup group) : cache_(&cache), group_(cache.pool().add_fields(std::move(group))) {
  try {
    cache.pages().add_fields(cache.pool().map(), group_);
  } catch (...) {
    cache.pool().remove_fields(group_);
    throw;
  }
}

FieldPlane::~FieldPlane() {
  if (cache_ == nullptr) return;
  cache_->pages().remove_fields(group_);
  cache_->pool().remove_fields(group_);
}

std::shared_ptr<KvCache> create_own_cache(Device& device, const ModelConfig& config, const Plan* plan,
                                          const EngineOptions& options) {
  const PageLayout layout = choose_layout(config, plan, options);
  const PoolMap map = options.windows.empty()
                          ? PoolMap(config.layers, config.kv_heads, choose_pages(config, layout, options), layout)
                          : map_of_slabs(config, layout, options, 1);
  return std::make_shared<KvCache>(device, config, map, windows_of(config, options), options.prefix_cache);
}

std::shared_ptr<KvCache> create_shared_cache(Device& device, const ModelConfig& config, const EngineOptions& options) {
  // One for fields.
  const PoolMap map = map_of_slabs(config, choose_layout(config, nullptr, options), options, 2);
  return std::make_shared<KvCache>(device, config, map, windows_of(config, options), options.prefix_cache);
}

}  // namespace sluice
