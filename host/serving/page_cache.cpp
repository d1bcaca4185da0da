#include "host/serving/page_cache.h"

#include "scripting/base/error.h"

namespace sluice {

PageCache::PageCache(int pages, int page, bool share) : page_(page), pool_(pages) {
  if (share) index_.emplace(pages, page);
}

int32_t PageCache::take() {
  if (pool_.free_pages() == 0 && index_) {
    const int32_t evicted = index_->evict();
    if (evicted != PrefixIndex::kNone) pool_.recycle(evicted);
  }
  const int32_t page = pool_.allocate();
  if (page < 0) throw InternalError("a page was taken from an exhausted pool");
  return page;
}

void PageCache::retain(int32_t page) {
  if (pool_.users(page) == 0) index_->set_busy(page);
  pool_.retain(page);
}

void PageCache::release(int32_t page) {
  if (pool_.release(page) > 0) return;
  if (index_ && index_->contains(page)) {
    index_->set_idle(page);
  } else {
    pool_.recycle(page);
  }
}

void PageCache::release(std::span<const int32_t> pages) {
  // Last to first: a page is then never evicted before the pages that follow it, which could not be found without it.
  for (size_t i = pages.size(); i > 0; --i) release(pages[i - 1]);
}

int PageCache::match(std::span<const int32_t> tokens, std::vector<int32_t>& pages) {
  if (!index_) return 0;
  int32_t parent = PrefixIndex::kRoot;
  int found = 0;
  const auto size = static_cast<size_t>(page_);
  for (size_t first = 0; first + size <= tokens.size(); first += size) {
    const int32_t page = index_->find(parent, tokens.subspan(first, size));
    if (page == PrefixIndex::kNone) break;
    retain(page);
    pages.push_back(page);
    parent = page;
    ++found;
  }
  return found;
}

int32_t PageCache::publish(int32_t parent, std::span<const int32_t> tokens, int32_t page) {
  if (!index_) return page;
  const int32_t known = index_->find(parent, tokens);
  if (known == page) return page;
  if (known == PrefixIndex::kNone) {
    index_->insert(parent, tokens, page);
    return page;
  }
  retain(known);
  release(page);
  return known;
}

}  // namespace sluice
