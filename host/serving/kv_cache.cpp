#include "host/serving/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

/// By layer; 0: it sees all, as with a window as long as the model's positions.
std::vector<int> layer_windows(const ModelConfig& config, const EngineOptions& options) {
  std::vector<int> windows(static_cast<size_t>(config.layers), 0);
  for (int layer = 0; layer < config.layers; ++layer) windows[static_cast<size_t>(layer)] = config.window(layer);
  std::vector<bool> is_told(windows.size(), false);
  for (const LayerWindow& told : options.windows) {
    if (told.layers.empty()) throw InputError(fmt::format("a window of {} tokens for no layer", told.tokens));
    if (told.tokens < 1) throw InputError(fmt::format("a window of {} tokens; at least 1 is wanted", told.tokens));
    for (const int layer : told.layers) {
      if (layer < 0 || layer >= config.layers) {
        throw InputError(fmt::format("a window for layer {} of a model of {} layers", layer, config.layers));
      }
      if (is_told[static_cast<size_t>(layer)]) throw InputError(fmt::format("two windows for layer {}", layer));
      is_told[static_cast<size_t>(layer)] = true;
      windows[static_cast<size_t>(layer)] = told.tokens;
    }
  }
  for (int& window : windows) window = window >= config.max_positions ? 0 : window;
  return windows;
}

/// Groups of layers with the same window; that which keeps everything first.
struct Groups {
  std::vector<CacheGroup> groups;
  std::vector<int> windows;  // by group; 0: its layers see all
};

Groups groups_of(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options) {
  std::map<int, std::vector<int>> layers;  // by window
  const std::vector<int> windows = layer_windows(config, options);
  for (int layer = 0; layer < config.layers; ++layer) layers[windows[static_cast<size_t>(layer)]].push_back(layer);
  if (layers.size() > kMostGroups) {
    throw InputError(fmt::format("{} windows; at most {} groups of layers are kept apart", layers.size(), kMostGroups));
  }
  const auto most = std::max_element(layers.begin(), layers.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const int first = layers.begin()->first == 0 ? 0 : most->first;
  Groups result;
  const auto add = [&](int window) {
    result.groups.push_back({layers.at(window), layout});
    result.windows.push_back(window);
  };
  add(first);
  for (const auto& [window, of_window] : layers) {
    if (window != first) add(window);
  }
  return result;
}

/// Slabs are as small as memory is read fast: a stretch of pages of a layer fills the larger pages of memory that devices have.
/// They have whole numbers of pages of the group with the most layers. There are `least_slabs` at least.
PoolMap map_of_slabs(const ModelConfig& config, const PageLayout& layout, const EngineOptions& options, size_t least_slabs) {
  const int pages = choose_pages(config, layout, options);
  constexpr size_t kStretch = size_t{2} << 20;
  constexpr size_t kFewSlabs = 32;  // for small pools stretches are shorter
  std::vector<CacheGroup> groups = groups_of(config, layout, options).groups;
  const size_t page_bytes = layout.bytes * static_cast<size_t>(config.kv_heads);
  const size_t bytes = page_bytes * static_cast<size_t>(config.layers) * static_cast<size_t>(pages);
  size_t most_layers = 0;
  for (const CacheGroup& group : groups) most_layers = std::max(most_layers, group.layers.size());
  const size_t row_bytes = page_bytes * most_layers;
  const size_t wanted = std::max(bytes / std::max(row_bytes, most_layers * kStretch), kFewSlabs);
  const size_t slab_bytes = row_bytes * std::max<size_t>(1, bytes / wanted / row_bytes) + page_bytes;  // begin where they may
  // Every group could have all pages.
  size_t slabs = 0;
  for (const CacheGroup& group : groups) {
    const size_t slab_pages = slab_bytes / (page_bytes * group.layers.size());
    slabs += (static_cast<size_t>(pages) + slab_pages - 1) / slab_pages;
  }
  return {config.kv_heads, std::move(groups), slab_bytes, static_cast<int>(std::max(slabs, least_slabs))};
}

/// By group, what it keeps.
std::vector<int> kept_of(std::vector<int> windows, const EngineOptions& options) {
  windows.front() = 0;
  if (options.keep_all) std::fill(windows.begin(), windows.end(), 0);
  return windows;
}

std::shared_ptr<KvCache> create_cache(Device& device, const ModelConfig& config, const PoolMap& map,
                                      const EngineOptions& options) {
  const std::vector<int> windows = groups_of(config, map.layout(0), options).windows;
  return std::make_shared<KvCache>(device, config, map, windows, kept_of(windows, options), options.prefix_cache);
}

}  // namespace

KvCache::KvCache(Device& device, const ModelConfig& config, const PoolMap& map, std::vector<int> windows, std::vector<int> kept,
                 bool prefixes)
    : device_(device),
      config_(config),
      pool_(device.create_pool(map)),
      windows_(std::move(windows)),
      pages_(pool_->map(), {.page = pool_->layout().page, .share = prefixes, .windows = kept}),
      keeps_all_(std::all_of(kept.begin(), kept.end(), [](int window) { return window == 0; })) {}

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
  const bool is_one_group = groups_of(config, layout, options).groups.size() == 1;
  const PoolMap map = is_one_group ? PoolMap(config.layers, config.kv_heads, choose_pages(config, layout, options), layout)
                                   : map_of_slabs(config, layout, options, 1);
  return create_cache(device, config, map, options);
}

std::shared_ptr<KvCache> create_shared_cache(Device& device, const ModelConfig& config, const EngineOptions& options) {
  // One for fields.
  const PoolMap map = map_of_slabs(config, choose_layout(config, nullptr, options), options, 2);
  return create_cache(device, config, map, options);
}

}  // namespace sluice
