#include "kernels/device/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

void require_page_size(int page) {
  if (page >= 8 && page <= 128 && (page & (page - 1)) == 0) return;
  throw InputError(fmt::format("a page holds 8, 16, 32, 64 or 128 tokens, not {}", page));
}

size_t product(std::initializer_list<size_t> factors, const std::string& what) {
  size_t bytes = 1;
  for (const size_t factor : factors) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) throw InputError(fmt::format("{} is beyond any memory", what));
  }
  return bytes;
}

CacheGroup group_of_all(int layers, const PageLayout& layout) {
  CacheGroup group{std::vector<int>(static_cast<size_t>(std::max(layers, 0))), layout};
  std::iota(group.layers.begin(), group.layers.end(), 0);
  return group;
}

size_t slab_of(int layers, int kv_heads, int pages, const PageLayout& layout) {
  if (layers < 1 || kv_heads < 1 || pages < 1) {
    throw InputError(fmt::format("a page pool of {} layers, {} KV heads and {} pages cannot be made", layers, kv_heads, pages));
  }
  require_page_size(layout.page);
  return product({static_cast<size_t>(layers), static_cast<size_t>(kv_heads), static_cast<size_t>(pages), layout.bytes},
                 fmt::format("a page pool of {} layers, {} KV heads and {} pages", layers, kv_heads, pages));
}

}  // namespace

PoolMap::PoolMap(int layers, int kv_heads, int pages, const PageLayout& layout)
    : PoolMap(kv_heads, {}, slab_of(layers, kv_heads, pages, layout), 1) {
  const size_t page_bytes = static_cast<size_t>(kv_heads) * layout.bytes;
  groups_.push_back({group_of_all(layers, layout), page_bytes, pages});
  for (int layer = 0; layer < layers; ++layer) places_.push_back({0, layer});
}

PoolMap::PoolMap(int kv_heads, std::vector<CacheGroup> groups, size_t slab_bytes, int slabs)
    : kv_heads_(kv_heads), slab_bytes_(slab_bytes), slabs_(slabs) {
  if (kv_heads < 1 || slabs < 1)
    throw InputError(fmt::format("a page pool of {} KV heads and {} slabs cannot be made", kv_heads, slabs));
  product({slab_bytes, static_cast<size_t>(slabs)}, fmt::format("a page pool of {} slabs", slabs));
  for (CacheGroup& group : groups) {
    if (!group.layout.has_tokens) throw InternalError("fields are added to a map, not made with it");
    const auto index = static_cast<int>(groups_.size());
    for (size_t rank = 0; rank < group.layers.size(); ++rank) {
      const auto layer = static_cast<size_t>(group.layers[rank]);
      if (places_.size() <= layer) places_.resize(layer + 1, {-1, 0});
      if (places_[layer].group >= 0) throw InputError(fmt::format("layer {} is in two groups", layer));
      places_[layer] = {index, static_cast<int>(rank)};
    }
    groups_.push_back(placed(std::move(group)));
  }
  for (size_t layer = 0; layer < places_.size(); ++layer) {
    if (places_[layer].group < 0) throw InputError(fmt::format("layer {} is in no group", layer));
  }
}

PoolMap::Group PoolMap::placed(CacheGroup group) const {
  require_page_size(group.layout.page);
  const size_t page_bytes = static_cast<size_t>(kv_heads_) * group.layout.bytes;
  const size_t spare = slabs_ > 1 ? page_bytes : 0;  // pages begin at multiples of their size, slabs need not
  const size_t row_bytes = page_bytes * group.layers.size();
  const size_t pages = slab_bytes_ <= spare || row_bytes == 0 ? 0 : (slab_bytes_ - spare) / row_bytes;
  if (pages == 0) {
    throw InputError(fmt::format("a slab of {} bytes cannot hold a page of {} layers of {} bytes", slab_bytes_,
                                 group.layers.size(), page_bytes),
                     "make the pool larger");
  }
  return {std::move(group), page_bytes, static_cast<int>(std::min<size_t>(pages, 1 << 24))};
}

PoolMap::Place PoolMap::field_place_of(int group, int layer) const {
  const std::vector<int>& layers = this->group(group).layers;
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer);
  if (found == layers.end() || *found != layer)
    throw InternalError(fmt::format("group {} has no fields of layer {}", group, layer));
  return {group, static_cast<int>(found - layers.begin())};
}

int PoolMap::add_fields(CacheGroup group) {
  if (group.layout.has_tokens) throw InternalError("a group of fields has K and V");
  for (const int layer : group.layers) {
    if (layer < 0 || layer >= layers()) throw InternalError(fmt::format("fields of layer {} of {}", layer, layers()));
  }
  Group added = placed(std::move(group));
  const auto gap = std::find_if(groups_.begin(), groups_.end(), [](const Group& each) { return each.group.layers.empty(); });
  const auto index = static_cast<int>(gap - groups_.begin());
  if (gap == groups_.end()) {
    groups_.push_back(std::move(added));
  } else {
    *gap = std::move(added);
  }
  return index;
}

void PoolMap::remove_fields(int group) {
  if (!has_group(group) || layout(group).has_tokens) throw InternalError(fmt::format("group {} has no fields alone", group));
  groups_[static_cast<size_t>(group)] = {};
}

PoolMap map_of_plan(int layers, int kv_heads, int pages, const Plan& plan) {
  if (!plan.has_field_pages()) return {layers, kv_heads, pages, plan.layout};
  CacheGroup tokens = group_of_all(layers, plan.layout);
  // Room for as many pages, which may begin a page later.
  const size_t slab = slab_of(layers, kv_heads, pages, plan.layout) + static_cast<size_t>(kv_heads) * plan.layout.bytes;
  PoolMap map(kv_heads, {tokens}, slab, 2);
  map.add_fields({std::move(tokens.layers), plan.fields()});
  return map;
}

int32_t PoolMap::first_page(int group, int slab) const {
  const size_t bytes = page_bytes(group);
  return static_cast<int32_t>((static_cast<size_t>(slab) * slab_bytes_ + bytes - 1) / bytes);
}

void Pool::read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const {
  size_t at = 0;
  for (const int layer : map_.group(0).layers) {
    read_layer(layer, pages, tokens, keys + at, values + at);
    at += static_cast<size_t>(tokens) * static_cast<size_t>(kv_heads()) * static_cast<size_t>(layout().head_dim);
  }
}

void Pool::write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) {
  size_t at = 0;
  for (const int layer : map_.group(0).layers) {
    write_layer(layer, pages, tokens, {}, keys + at, values + at);
    at += static_cast<size_t>(tokens) * static_cast<size_t>(kv_heads()) * static_cast<size_t>(layout().head_dim);
  }
}

}  // namespace sluice
