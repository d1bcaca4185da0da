#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "scripting/graph/plan.h"

namespace sluice {

/// Layers that keep the same tokens, and what lies in a page of theirs: K and V, with a flow's fields or without, or fields
/// alone. A sequence has a list of pages for each group, so that fields in a group of their own (a plane beside that of K and V)
/// are kept and freed by themselves, and flows with other fields have the same K and V.
struct CacheGroup {
  std::vector<int> layers;  // ascending
  PageLayout layout;
};

/// Where pages lie in the memory of a pool. The memory is cut into slabs of equal size, of which each belongs to one group at a
/// time: who owns a slab is the host's to say, so that groups share memory out in bytes. In a slab lie, for each layer of its
/// group, as many pages as fit: [layer, page, KV head] blocks of `PageLayout::bytes`.
///
/// Page `p` of the layer of rank `r` in its group begins at (r * slab_pages + p) * page_bytes, whatever slab it is in; numbers of
/// pages therefore have gaps between slabs.
///
/// Each layer is in one group that has its K and V, and in any number of groups that have fields of it.
class PoolMap {
 public:
  /// Throws InputError for counts below 1, a page that no device takes, slabs too small for a page, or more bytes than a size_t
  /// holds.
  PoolMap(int kv_heads, std::vector<CacheGroup> groups, size_t slab_bytes, int slabs);
  /// One slab that holds `pages` pages of one group of `layers` layers.
  PoolMap(int layers, int kv_heads, int pages, const PageLayout& layout);

  int layers() const { return static_cast<int>(places_.size()); }
  int kv_heads() const { return kv_heads_; }
  size_t bytes() const { return slab_bytes_ * static_cast<size_t>(slabs_); }
  int slabs() const { return slabs_; }
  /// Numbers of groups are below this.
  int groups() const { return static_cast<int>(groups_.size()); }
  /// Whether there is such a group: `remove_fields` leaves a gap.
  bool has_group(int index) const { return index >= 0 && index < groups() && !group(index).layers.empty(); }
  const CacheGroup& group(int index) const { return groups_.at(static_cast<size_t>(index)).group; }
  const PageLayout& layout(int group) const { return this->group(group).layout; }

  /// Bytes of a page of one layer of a group.
  size_t page_bytes(int group) const { return groups_.at(static_cast<size_t>(group)).page_bytes; }
  /// Pages of a group that a slab holds.
  int slab_pages(int group) const { return groups_.at(static_cast<size_t>(group)).slab_pages; }
  /// The number of the first of them; the others follow.
  int32_t first_page(int group, int slab) const;
  /// The numbers of a group's pages are below this.
  int32_t page_limit(int group) const { return first_page(group, slabs_ - 1) + slab_pages(group); }

  struct Place {
    int group = 0;
    int rank = 0;  // of the layer in the group
  };
  /// Of the group that keeps the layer's K and V.
  Place place_of(int layer) const { return places_.at(static_cast<size_t>(layer)); }
  /// In a group that has fields of it. Throws InternalError if the group has not got the layer.
  Place field_place_of(int group, int layer) const;
  /// Where page 0 of a layer begins, or would begin.
  size_t layer_offset(const Place& place) const {
    return static_cast<size_t>(place.rank) * static_cast<size_t>(slab_pages(place.group)) * page_bytes(place.group);
  }

  /// Adds a group that has fields alone and returns its number, which is that of one that was removed if there is any. Throws
  /// InputError where a slab cannot hold a page of it.
  int add_fields(CacheGroup group);
  void remove_fields(int group);

 private:
  struct Group {
    CacheGroup group;
    size_t page_bytes = 0;
    int slab_pages = 0;
  };

  /// Throws InputError for a page that no device takes, or larger than a slab.
  Group placed(CacheGroup group) const;

  int kv_heads_;
  size_t slab_bytes_;
  int slabs_;
  std::vector<Group> groups_;
  std::vector<Place> places_;  // [layers]
};

/// So many pages of K and V of `layers` layers as `plan` has them. Where its fields have pages of their own there are as many of
/// these in a slab behind, of group 1, from PoolMap::first_page(1, 1) on.
PoolMap map_of_plan(int layers, int kv_heads, int pages, const Plan& plan);

/// A token that goes from one place of a group's pages to another.
struct TokenMove {
  int32_t from_page = 0;
  int32_t from_token = 0;  // of its page
  int32_t to_page = 0;
  int32_t to_token = 0;
  int32_t head = 0;  // KV heads of this number modulo `heads` move it
  int32_t heads = 1;
};

/// Layers of a group of the cache.
struct GroupLayers {
  int group = 0;
  int first = 0;  // layer of the model: those before it are none of them
};

/// Tokens side by side in a page that are copied to another, where their text stands elsewhere.
struct ShiftedRun {
  int32_t from_page = 0;
  int32_t from_token = 0;  // the first, of its page
  int32_t to_page = 0;
  int32_t to_token = 0;
  int32_t tokens = 0;         // all in one page, before and after
  int32_t from_position = 0;  // of the first in its text
  int32_t to_position = 0;
};

/// All pages of one engine, or of several that share them.
class Pool {
 public:
  explicit Pool(PoolMap map) : map_(std::move(map)) {}
  virtual ~Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const PoolMap& map() const { return map_; }
  /// See PoolMap. Nothing that the device has been told to do may be at a group that is removed.
  int add_fields(CacheGroup group) { return map_.add_fields(std::move(group)); }
  void remove_fields(int group) { map_.remove_fields(group); }
  int layers() const { return map_.layers(); }
  int kv_heads() const { return map_.kv_heads(); }
  size_t bytes() const { return map_.bytes(); }
  const PageLayout& layout(int group = 0) const { return map_.layout(group); }
  /// The numbers of a group's pages are below this.
  int pages(int group = 0) const { return map_.page_limit(group); }

  /// Copies page sources[i] of a group over page targets[i] in each of its layers and heads (copy on write of shared pages). All
  /// at once: no page may be a target twice, or a target and the source of another.
  virtual void copy_pages(int group, std::span<const int32_t> sources, std::span<const int32_t> targets) = 0;
  /// Fills pages of a group with zeros, in each of its layers.
  virtual void clear_pages(int group, std::span<const int32_t> pages) = 0;
  /// Copies the K and V of tokens in each of a group's layers. All at once: in no head may a place be a target twice, or a target
  /// and the source of another.
  virtual void move_tokens(int group, std::span<const TokenMove> moves) = 0;
  /// Copies the first `tokens` tokens of a layer's K and V in `pages` of its group into `keys`, `values`: float32 [tokens,
  /// kv_heads, dim], in memory of the host or of the device.
  virtual void read_layer(int layer, std::span<const int32_t> pages, int tokens, float* keys, float* values) const = 0;
  /// The inverse: stores K and V, rounded to the pool's type. In KV head h token t goes to the slot of `pages` that stands in
  /// `slots`, [tokens][heads], at place h modulo `heads`; nowhere if that is -1; to slot t where `slots` is empty. Cached fields
  /// are untouched: `CacheOperations::refresh_pages` recomputes them.
  virtual void write_layer(int layer, std::span<const int32_t> pages, int tokens, std::span<const int32_t> slots,
                           const float* keys, const float* values) = 0;

  // Of the first group.
  void copy_page(int32_t source, int32_t target) { copy_pages(0, {&source, 1}, {&target, 1}); }
  /// [layers of the group, tokens, kv_heads, dim].
  void read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const;
  void write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values);

 private:
  PoolMap map_;
};

}  // namespace sluice
