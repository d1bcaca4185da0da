#include "host/serving/page_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int kNobody = -1;
constexpr int32_t kNone = PrefixIndex::kNone;

int slabs_for(int pages, int slab_pages) { return pages <= 0 ? 0 : (pages + slab_pages - 1) / slab_pages; }

}  // namespace

PageCache::PageCache(const PoolMap& map, const Options& options) : page_(options.page), share_(options.share) {
  if (map.groups() > kMostGroups)
    throw InputError(fmt::format("{} groups of layers, at most {} are kept apart", map.groups(), kMostGroups));
  if (!options.windows.empty() && options.windows.front() != 0) throw InputError("the first group of layers keeps all tokens");
  owners_.assign(static_cast<size_t>(map.slabs()), kNobody);
  for (int group = 0; group < map.groups(); ++group) {
    std::vector<int32_t> first_pages;
    for (int slab = 0; slab < map.slabs(); ++slab) first_pages.push_back(map.first_page(group, slab));
    const auto index = static_cast<size_t>(group);
    const int window = index < options.windows.size() ? options.windows[index] : 0;
    add_group(window, map.slab_pages(group), std::move(first_pages), map.page_limit(group));
  }
  for (int slab = map.slabs() - 1; slab >= 0; --slab) free_slabs_.push_back(slab);
  if (share_) index_.emplace(map.page_limit(0), page_);
}

PageCache::PageCache(int pages, int page, bool share) : page_(page), share_(share), owners_{kNobody} {
  add_group(0, pages, {0}, pages);
  free_slabs_ = {0};
  if (share) index_.emplace(pages, page);
}

void PageCache::add_group(int window, int slab_pages, std::vector<int32_t> first_pages, int limit) {
  Group group{.window = window,
              .slab_pages = slab_pages,
              .first_pages = std::move(first_pages),
              .pool = BlockPool::empty(limit),
              .idle = IdlePages(limit),
              .used = std::vector<int>(owners_.size(), 0)};
  if (!groups_.empty() && share_) {
    group.beside.assign(static_cast<size_t>(groups_.front().first_pages.back() + groups_.front().slab_pages), kNone);
    group.node.assign(static_cast<size_t>(limit), kNone);
  }
  groups_.push_back(std::move(group));
}

int PageCache::first_page(int group, int position) const {
  const int window = this->window(group);
  return window == 0 ? 0 : std::max(0, position - window + 1) / page_;
}

size_t PageCache::bytes() const {
  size_t bytes = index_ ? index_->bytes() : 0;
  for (const Group& group : groups_) {
    bytes += group.pool.bytes() + (group.beside.capacity() + group.node.capacity()) * sizeof(int32_t);
    if (share_) bytes += group.idle.bytes();
  }
  return bytes;
}

int PageCache::slab_of(const Group& group, int32_t page) {
  if (group.first_pages.size() == 1) return 0;
  return static_cast<int>(std::upper_bound(group.first_pages.begin(), group.first_pages.end(), page) -
                          group.first_pages.begin()) -
         1;
}

int PageCache::unused_slabs(int group) const {
  int unused = 0;
  for (size_t slab = 0; slab < owners_.size(); ++slab) {
    if (owners_[slab] == group && groups_[static_cast<size_t>(group)].used[slab] == 0) ++unused;
  }
  return unused;
}

int PageCache::available(int group) const {
  const Group& wanted = groups_[static_cast<size_t>(group)];
  int slabs = free_slabs();
  for (int other = 0; other < groups(); ++other) {
    if (other != group) slabs += unused_slabs(other);
  }
  return spare(wanted) + slabs * wanted.slab_pages;
}

bool PageCache::has_room(const PageCounts& wanted) const {
  int missing = 0;  // slabs
  int slabs = free_slabs();
  for (int index = 0; index < groups(); ++index) {
    const Group& group = groups_[static_cast<size_t>(index)];
    const int more = wanted[static_cast<size_t>(index)] - spare(group);
    if (more > 0) {
      missing += slabs_for(more, group.slab_pages);
    } else if (groups() > 1) {
      slabs += std::min(unused_slabs(index), -more / group.slab_pages);
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

bool PageCache::is_known(int group, int32_t page) const {
  if (!share_) return false;
  return group == 0 ? index_->contains(page) : groups_[static_cast<size_t>(group)].node[static_cast<size_t>(page)] != kNone;
}

void PageCache::adopt(int slab, int group) {
  owners_[static_cast<size_t>(slab)] = group;
  at(group).pool.add(at(group).first_pages[static_cast<size_t>(slab)], at(group).slab_pages);
}

void PageCache::strip(int slab) {
  const int owner = std::exchange(owners_[static_cast<size_t>(slab)], kNobody);
  Group& group = at(owner);
  const int32_t first = group.first_pages[static_cast<size_t>(slab)];
  for (int32_t page = first; page < first + group.slab_pages; ++page) {
    if (group.idle.contains(page)) evict(owner, page);
  }
  group.pool.withdraw(first, group.slab_pages);
}

void PageCache::make_room(int group) {
  if (!free_slabs_.empty()) {
    adopt(free_slabs_.back(), group);
    free_slabs_.pop_back();
  } else if (at(group).idle.count() > 0) {
    evict(group, at(group).idle.oldest());
  } else {
    for (size_t slab = 0; slab < owners_.size(); ++slab) {
      const int owner = owners_[slab];
      if (owner == group || at(owner).used[slab] > 0) continue;
      strip(static_cast<int>(slab));
      adopt(static_cast<int>(slab), group);
      return;
    }
  }
}

int32_t PageCache::take(int group) {
  if (at(group).pool.free_pages() == 0) make_room(group);
  const int32_t page = at(group).pool.allocate();
  if (page < 0) throw InternalError("a page was taken from an exhausted pool");
  ++at(group).used[static_cast<size_t>(slab_of(at(group), page))];
  return page;
}

void PageCache::retain(int group, int32_t page) {
  Group& of = at(group);
  if (of.pool.users(page) == 0) {
    of.idle.remove(page);
    ++of.used[static_cast<size_t>(slab_of(of, page))];
  }
  of.pool.retain(page);
}

void PageCache::release(int group, int32_t page) {
  Group& of = at(group);
  if (of.pool.release(page) > 0) return;
  --of.used[static_cast<size_t>(slab_of(of, page))];
  if (is_known(group, page)) {
    of.idle.add(page);
  } else {
    of.pool.recycle(page);
  }
}

void PageCache::release(int group, std::span<const int32_t> pages) {
  // Last to first: a page is then never evicted before the pages that follow it, which could not be found without it.
  for (size_t i = pages.size(); i > 0; --i) release(group, pages[i - 1]);
}

void PageCache::forget(int group, int32_t page) {
  if (group > 0) {
    int32_t& node = at(group).node[static_cast<size_t>(page)];
    at(group).beside[static_cast<size_t>(node)] = kNone;
    node = kNone;
    return;
  }
  index_->erase(page);
  // What other groups have of its tokens is not found without it.
  for (int other = 1; other < groups(); ++other) {
    const int32_t beside = at(other).beside[static_cast<size_t>(page)];
    if (beside == kNone) continue;
    if (at(other).idle.contains(beside)) {
      evict(other, beside);
    } else {
      forget(other, beside);
    }
  }
}

void PageCache::evict(int group, int32_t page) {
  at(group).idle.remove(page);
  forget(group, page);
  at(group).pool.recycle(page);
}

int PageCache::match(std::span<const int32_t> tokens, std::span<std::vector<int32_t>* const> pages) {
  if (!index_) return 0;
  const auto size = static_cast<size_t>(page_);
  std::vector<int32_t>& found = *pages[0];
  const size_t before = found.size();
  for (size_t first = 0; first + size <= tokens.size(); first += size) {
    const int32_t page = index_->find(found.size() == before ? PrefixIndex::kRoot : found.back(), tokens.subspan(first, size));
    if (page == kNone) break;
    found.push_back(page);
  }
  auto count = static_cast<int>(found.size() - before);
  const auto has_all = [&](int group) {
    for (int page = first_page(group, count * page_); page < count; ++page) {
      if (at(group).beside[static_cast<size_t>(found[before + static_cast<size_t>(page)])] == kNone) return false;
    }
    return true;
  };
  for (int group = 1; group < groups() && count > 0;) {
    if (has_all(group)) {
      ++group;
    } else {
      --count;
      group = 1;
    }
  }
  found.resize(before + static_cast<size_t>(count));
  for (const int32_t page : std::span(found).subspan(before)) retain(0, page);
  for (int group = 1; group < groups(); ++group) {
    for (int page = first_page(group, count * page_); page < count; ++page) {
      pages[static_cast<size_t>(group)]->push_back(
          at(group).beside[static_cast<size_t>(found[before + static_cast<size_t>(page)])]);
      retain(group, pages[static_cast<size_t>(group)]->back());
    }
  }
  return count;
}

int32_t PageCache::publish(int32_t parent, std::span<const int32_t> tokens, int32_t page) {
  if (!index_) return page;
  const int32_t known = index_->find(parent, tokens);
  if (known == page) return page;
  if (known == kNone) {
    index_->insert(parent, tokens, page);
    return page;
  }
  retain(0, known);
  release(0, page);
  return known;
}

int32_t PageCache::publish_beside(int32_t node, int group, int32_t page) {
  if (!index_) return page;
  int32_t& beside = at(group).beside[static_cast<size_t>(node)];
  if (beside == page) return page;
  if (beside == kNone) {
    beside = page;
    at(group).node[static_cast<size_t>(page)] = node;
    return page;
  }
  retain(group, beside);
  release(group, page);
  return beside;
}

}  // namespace sluice
