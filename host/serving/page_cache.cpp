#include "host/serving/page_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int32_t kNone = PrefixIndex::kNone;

}  // namespace

PageCounts operator+(PageCounts a, const PageCounts& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

PageCache::PageCache(const PoolMap& map, const Options& options) : page_(options.page), share_(options.share) {
  if (map.groups() > kMostGroups)
    throw InputError(fmt::format("{} groups of layers, at most {} are kept apart", map.groups(), kMostGroups));
  if (!options.windows.empty() && options.windows.front() != 0) throw InputError("the first group of layers keeps all tokens");
  owners_.assign(static_cast<size_t>(map.slabs()), kNobody);
  idle_seen_.assign(owners_.size(), 0);
  groups_.reserve(kMostGroups);
  for (int group = 0; group < map.groups(); ++group) {
    const auto index = static_cast<size_t>(group);
    groups_.push_back(make_group(index < options.windows.size() ? options.windows[index] : 0, map, group));
    if (index < options.lives.size()) groups_.back().lives = options.lives[index];
  }
  for (int slab = map.slabs() - 1; slab >= 0; --slab) free_slabs_.push_back(slab);
  if (share_) index_.emplace(pages(), page_);
}

PageCache::PageCache(int pages, int page, bool share) : page_(page), share_(share), owners_{kNobody}, idle_seen_{0} {
  groups_.push_back(make_group(0, pages, {0}));
  free_slabs_ = {0};
  if (share) index_.emplace(pages, page);
}

PageCache::Group PageCache::make_group(int window, int slab_pages, std::vector<int32_t> first_pages) const {
  const int pages = slabs() * slab_pages;
  Group group{.window = window,
              .slab_pages = slab_pages,
              .first_pages = std::move(first_pages),
              .slabs = std::vector<BlockPool>(owners_.size(), BlockPool(slab_pages)),
              .used = std::vector<int>(owners_.size(), 0),
              .idle = IdlePages(share_ ? pages : 0)};
  if (!groups_.empty() && share_) {
    group.beside.assign(static_cast<size_t>(this->pages()), kNone);
    group.node.assign(static_cast<size_t>(pages), kNone);
  }
  return group;
}

PageCache::Group PageCache::make_group(int window, const PoolMap& map, int index) const {
  std::vector<int32_t> first_pages;
  for (int slab = 0; slab < map.slabs(); ++slab) first_pages.push_back(map.first_page(index, slab));
  return make_group(window, map.slab_pages(index), std::move(first_pages));
}

void PageCache::add_fields(const PoolMap& map, int group) {
  if (group >= kMostGroups) {
    throw InputError(fmt::format("{} groups of pages in one pool; there is room for {}", group + 1, kMostGroups),
                     "let fewer flows share it");
  }
  Group added = make_group(0, map, group);
  added.has_fields = true;
  if (group == groups()) {
    groups_.push_back(std::move(added));
  } else {
    at(group) = std::move(added);
  }
}

void PageCache::remove_fields(int group) {
  for (int slab = 0; slab < slabs(); ++slab) {
    if (owners_[static_cast<size_t>(slab)] != group) continue;
    if (at(group).used[static_cast<size_t>(slab)] > 0) throw InternalError("fields are removed, and somebody uses them");
    strip(slab);
    free_slabs_.push_back(slab);
  }
  at(group) = {.first_pages = {}, .slabs = {}, .used = {}, .idle = IdlePages(0)};
}

int PageCache::add_sharer() {
  ++sharers_;
  claims_.reserve(promises_.size() + 1);
  const auto gap = std::find(promises_.begin(), promises_.end(), std::nullopt);
  const auto sharer = static_cast<int>(gap - promises_.begin());
  if (gap == promises_.end()) {
    promises_.emplace_back(PageCounts{});
  } else {
    gap->emplace();
  }
  return sharer;
}

void PageCache::remove_sharer(int sharer) {
  --sharers_;
  drop_claim(sharer);
  promises_[static_cast<size_t>(sharer)].reset();
}

PageCounts PageCache::promised(int but_to) const {
  PageCounts sum{};
  for (size_t sharer = 0; sharer < promises_.size(); ++sharer) {
    if (static_cast<int>(sharer) != but_to && promises_[sharer]) sum = sum + *promises_[sharer];
  }
  return sum;
}

void PageCache::claim(int sharer, const PageCounts& pages) {
  const auto known = std::find_if(claims_.begin(), claims_.end(), [&](const Claim& each) { return each.sharer == sharer; });
  if (known == claims_.end()) {
    claims_.push_back({sharer, pages});
  } else {
    known->pages = pages;
  }
}

void PageCache::drop_claim(int sharer) {
  std::erase_if(claims_, [&](const Claim& each) { return each.sharer == sharer; });
}

PageCounts PageCache::claimed_before(int sharer) const {
  PageCounts sum{};
  for (const Claim& each : claims_) {
    if (each.sharer == sharer) break;
    sum = sum + each.pages;
  }
  return sum;
}

int PageCache::first_page(int group, int position) const {
  const int window = this->window(group);
  return window == 0 ? 0 : std::max(0, position - window + 1) / page_;
}

size_t PageCache::bytes() const {
  size_t bytes = index_ ? index_->bytes() : 0;
  for (const Group& group : groups_) {
    for (const BlockPool& slab : group.slabs) bytes += slab.bytes();
    bytes += (group.beside.capacity() + group.node.capacity()) * sizeof(int32_t) + group.idle.bytes();
  }
  return bytes;
}

int32_t PageCache::place_of(const Group& group, int32_t number) {
  if (group.first_pages.size() == 1) return number;
  const auto next = std::upper_bound(group.first_pages.begin(), group.first_pages.end(), number);
  const auto slab = static_cast<int32_t>(next - group.first_pages.begin()) - 1;
  return slab * group.slab_pages + number - group.first_pages[static_cast<size_t>(slab)];
}

int32_t PageCache::number_of(const Group& group, int32_t place) {
  return group.first_pages[static_cast<size_t>(place / group.slab_pages)] + place % group.slab_pages;
}

int PageCache::users(int group, int32_t page) const {
  const int32_t place = place_of(at(group), page);
  return at(group).slabs[static_cast<size_t>(place / at(group).slab_pages)].users(place % at(group).slab_pages);
}

void PageCache::add_freed(int group, int32_t page, FreedPages& freed) const {
  ++freed.pages[static_cast<size_t>(group)];
  ++freed.of_slabs[static_cast<size_t>(place_of(at(group), page) / at(group).slab_pages)];
}

bool PageCache::is_known(int group, int32_t place) const {
  if (!share_) return false;
  return group == 0 ? index_->contains(place) : at(group).node[static_cast<size_t>(place)] != kNone;
}

int32_t PageCache::take(int group, bool packs) {
  Group& of = at(group);
  if (of.free == 0 && !free_a_page(group, packs)) throw InternalError("a page was taken from an exhausted pool");
  int slab = fullest_with_free_page(group);
  if (is_shared() && of.used[static_cast<size_t>(slab)] == 0 && !can_miss_slab(group) && evict_in_used_slab(group)) {
    slab = fullest_with_free_page(group);
  }
  const int32_t page = of.slabs[static_cast<size_t>(slab)].allocate();
  --of.free;
  ++uses_;
  if (of.used[static_cast<size_t>(slab)]++ == 0) --of.unused;
  return of.first_pages[static_cast<size_t>(slab)] + page;
}

void PageCache::retain(int group, int32_t place) {
  Group& of = at(group);
  const auto slab = static_cast<size_t>(place / of.slab_pages);
  const int32_t page = place % of.slab_pages;
  if (of.slabs[slab].users(page) == 0) {
    of.idle.remove(place);
    if (of.used[slab]++ == 0) --of.unused;
  }
  of.slabs[slab].retain(page);
  ++uses_;
}

void PageCache::release_place(int group, int32_t place) {
  Group& of = at(group);
  const auto slab = static_cast<size_t>(place / of.slab_pages);
  const int32_t page = place % of.slab_pages;
  --uses_;
  if (of.slabs[slab].release(page) > 0) return;
  if (--of.used[slab] == 0) ++of.unused;
  if (is_known(group, place)) {
    of.idle.add(place);
    if (group == 0) ++idled_;
    return;
  }
  of.slabs[slab].recycle(page);
  ++of.free;
  // Nobody would find anything in it: whoever needs a slab next takes it before anything is evicted.
  if (groups() > 1 && of.slabs[slab].free_pages() == of.slab_pages) {
    strip(static_cast<int>(slab));
    free_slabs_.push_back(static_cast<int>(slab));
  }
}

void PageCache::release(int group, int32_t page) { release_place(group, place_of(at(group), page)); }

void PageCache::release(int group, std::span<const int32_t> pages) {
  // Last to first: a page is then never evicted before the pages that follow it, which could not be found without it.
  for (size_t i = pages.size(); i > 0; --i) {
    if (pages[i - 1] != kMissing) release(group, pages[i - 1]);
  }
}

void PageCache::forget(int group, int32_t place) {
  if (group > 0) {
    int32_t& node = at(group).node[static_cast<size_t>(place)];
    at(group).beside[static_cast<size_t>(node)] = kNone;
    node = kNone;
    return;
  }
  index_->erase(place);
  // What other groups have of its tokens is not found without it.
  for (int other = 1; other < groups(); ++other) {
    if (!has_group(other)) continue;
    const int32_t beside = at(other).beside[static_cast<size_t>(place)];
    if (beside == kNone) continue;
    if (at(other).idle.contains(beside)) {
      evict(other, beside);
    } else {
      forget(other, beside);
    }
  }
}

void PageCache::evict(int group, int32_t place) {
  Group& of = at(group);
  of.idle.remove(place);
  forget(group, place);
  of.slabs[static_cast<size_t>(place / of.slab_pages)].recycle(place % of.slab_pages);
  ++of.free;
}

int PageCache::match(std::span<const int32_t> tokens, std::span<std::vector<int32_t>* const> pages) {
  if (!index_) return 0;
  const auto size = static_cast<size_t>(page_);
  std::vector<int32_t>& found = *pages[0];  // places, until it is known which of them every group has
  const size_t before = found.size();
  for (size_t first = 0; first + size <= tokens.size(); first += size) {
    const int32_t place = index_->find(found.size() == before ? PrefixIndex::kRoot : found.back(), tokens.subspan(first, size));
    if (place == kNone) break;
    found.push_back(place);
  }
  auto count = static_cast<int>(found.size() - before);
  const auto beside = [&](int group, int page) {
    return at(group).beside[static_cast<size_t>(found[before + static_cast<size_t>(page)])];
  };
  const auto matters = [&](int group) {
    return group < static_cast<int>(pages.size()) && pages[static_cast<size_t>(group)] != nullptr;
  };
  // Of those that rows after `count` pages need. What is missing then would be needed after fewer pages, too.
  const auto first_missing = [&](int group) {
    if (!matters(group) || has_fields(group)) return count;
    for (int page = first_page(group, count * page_); page < count; ++page) {
      if (beside(group, page) == kNone && needs(group, page, count * page_)) return page;
    }
    return count;
  };
  for (int group = 1; group < groups() && count > 0;) {
    const int missing = first_missing(group);
    group = missing == count ? group + 1 : 1;
    count = missing;
  }
  found.resize(before + static_cast<size_t>(count));
  for (int group = 1; group < groups(); ++group) {
    if (!matters(group)) continue;
    for (int page = first_page(group, count * page_); page < count; ++page) {
      const int32_t place = needs(group, page, count * page_) ? beside(group, page) : kNone;
      if (place != kNone) retain(group, place);
      pages[static_cast<size_t>(group)]->push_back(place == kNone ? kMissing : number_of(at(group), place));
    }
  }
  for (int32_t& page : std::span(found).subspan(before)) {
    retain(0, page);
    page = number_of(at(0), page);
  }
  return count;
}

int32_t PageCache::publish(int32_t parent, std::span<const int32_t> tokens, int32_t page) {
  if (!index_) return page;
  const Group& group = at(0);
  const int32_t parent_place = parent == PrefixIndex::kRoot ? parent : place_of(group, parent);
  const int32_t place = place_of(group, page);
  const int32_t known = index_->find(parent_place, tokens);
  if (known == place) return page;
  if (known == kNone) {
    index_->insert(parent_place, tokens, place);
    return page;
  }
  retain(0, known);
  release_place(0, place);
  return number_of(group, known);
}

void PageCache::touch(int32_t page) {
  Group& group = at(0);
  const int32_t place = place_of(group, page);
  if (!group.idle.contains(place)) return;
  group.idle.remove(place);
  group.idle.add(place);
  ++idled_;
}

int32_t PageCache::publish_beside(int32_t node, int group, int32_t page) {
  if (!index_) return page;
  const int32_t node_place = place_of(at(0), node);
  const int32_t place = place_of(at(group), page);
  int32_t& beside = at(group).beside[static_cast<size_t>(node_place)];
  if (beside == place) return page;
  if (beside == kNone) {
    beside = place;
    at(group).node[static_cast<size_t>(place)] = node_place;
    return page;
  }
  retain(group, beside);
  release_place(group, place);
  return number_of(at(group), beside);
}

}  // namespace sluice
