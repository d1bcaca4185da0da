// Which group has which slab: room for pages of several groups at once, and the slab that the next page comes from.

#include <algorithm>

#include "host/serving/page_cache.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

int slabs_for(int pages, int slab_pages) { return pages <= 0 ? 0 : (pages + slab_pages - 1) / slab_pages; }

}  // namespace

int PageCache::available(int group) const {
  int slabs = free_slabs();
  for (int other = 0; other < groups(); ++other) {
    if (other != group) slabs += at(other).unused;
  }
  return spare(at(group)) + slabs * at(group).slab_pages;
}

bool PageCache::has_room(const PageCounts& wanted, const FreedPages* freed) const {
  PageCounts spare{};
  PageCounts unused{};
  for (int group = 0; group < groups(); ++group) {
    const auto index = static_cast<size_t>(group);
    spare[index] = PageCache::spare(at(group)) + (freed == nullptr ? 0 : freed->pages[index]);
    unused[index] = at(group).unused;
  }
  if (freed != nullptr && groups() > 1) {
    for (size_t slab = 0; slab < owners_.size(); ++slab) {
      if (owners_[slab] == kNobody || freed->of_slabs[slab] == 0) continue;
      if (at(owners_[slab]).used[slab] == freed->of_slabs[slab]) ++unused[static_cast<size_t>(owners_[slab])];
    }
  }
  int missing = 0;  // slabs
  int slabs = free_slabs();
  for (int group = 0; group < groups(); ++group) {
    const auto index = static_cast<size_t>(group);
    if (!has_group(group)) continue;
    const int more = wanted[index] - spare[index];
    if (more > 0) {
      missing += slabs_for(more, at(group).slab_pages);
    } else {
      slabs += std::min(unused[index], -more / at(group).slab_pages);
    }
  }
  return missing <= slabs;
}

bool PageCache::holds(const PageCounts& wanted) const {
  int missing = 0;
  for (int index = 0; index < groups(); ++index) {
    missing += slabs_for(wanted[static_cast<size_t>(index)], groups_[static_cast<size_t>(index)].slab_pages);
  }
  return missing <= slabs();
}

bool PageCache::make_room(const PageCounts& wanted) {
  if (!has_room(wanted)) return false;
  for (int group = 0; group < groups(); ++group) {
    while (spare(at(group)) < wanted[static_cast<size_t>(group)]) {
      if (!give_slab(group, wanted)) throw InternalError("there was room for pages, but no slab");
    }
  }
  return true;
}

bool PageCache::give_slab(int group, const PageCounts& wanted) {
  if (!free_slabs_.empty()) {
    adopt(free_slabs_.back(), group);
    free_slabs_.pop_back();
    return true;
  }
  for (int other = 0; other < groups(); ++other) {
    const Group& giver = at(other);
    if (other == group || giver.unused == 0) continue;
    if (spare(giver) - giver.slab_pages < wanted[static_cast<size_t>(other)]) continue;
    const int slab = coldest_unused(giver, other);
    strip(slab);
    adopt(slab, group);
    return true;
  }
  return false;
}

void PageCache::adopt(int slab, int group) {
  owners_[static_cast<size_t>(slab)] = group;
  at(group).free += at(group).slab_pages;
  ++at(group).unused;
}

void PageCache::strip(int slab) {
  const int owner = owners_[static_cast<size_t>(slab)];
  Group& group = at(owner);
  const int32_t first = slab * group.slab_pages;
  for (int32_t place = first; place < first + group.slab_pages && share_; ++place) {
    if (group.idle.contains(place)) evict(owner, place);
  }
  group.free -= group.slab_pages;
  --group.unused;
  owners_[static_cast<size_t>(slab)] = kNobody;
}

int PageCache::coldest_unused(const Group& group, int index) {
  for (size_t slab = 0; slab < owners_.size(); ++slab) {
    if (owners_[slab] == index && group.slabs[slab].free_pages() == group.slab_pages) return static_cast<int>(slab);
  }
  // By the page that became idle last: its slab is the first whose idle pages have all been seen.
  std::fill(idle_seen_.begin(), idle_seen_.end(), 0);
  for (int32_t place = group.idle.oldest(); place != IdlePages::kNone; place = group.idle.newer(place)) {
    const auto slab = static_cast<size_t>(place / group.slab_pages);
    if (group.used[slab] == 0 && ++idle_seen_[slab] + group.slabs[slab].free_pages() == group.slab_pages) {
      return static_cast<int>(slab);
    }
  }
  throw InternalError("no slab of a group is unused");
}

int PageCache::fullest_with_free_page(int group) const {
  if (slabs() == 1) return 0;
  int fullest = -1;
  for (int slab = 0; slab < slabs(); ++slab) {
    const auto index = static_cast<size_t>(slab);
    if (owners_[index] != group || at(group).slabs[index].free_pages() == 0) continue;
    if (fullest < 0 || at(group).used[index] > at(group).used[static_cast<size_t>(fullest)]) fullest = slab;
  }
  return fullest;
}

bool PageCache::free_a_page(int group, bool packs) {
  if (packs && evict_in_used_slab(group)) return true;
  // What another group knows goes last.
  if (!free_slabs_.empty() || at(group).idle.count() == 0) return give_slab(group, {});
  evict(group, at(group).idle.oldest());
  return true;
}

bool PageCache::can_miss_slab(int group) const {
  // As if the pages of that slab were spoken for.
  PageCounts wanted = promised();
  wanted[static_cast<size_t>(group)] += at(group).slab_pages;
  return has_room(wanted);
}

bool PageCache::evict_in_used_slab(int group) {
  const IdlePages& idle = at(group).idle;
  for (int32_t place = idle.oldest(); place != IdlePages::kNone; place = idle.newer(place)) {
    if (at(group).used[static_cast<size_t>(place / at(group).slab_pages)] == 0) continue;
    evict(group, place);
    return true;
  }
  return false;
}

}  // namespace sluice
