#include "host/serving/frozen_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scripting/base/error.h"

namespace sluice {
namespace {

int most_pages(const PageCache& cache) { return static_cast<int>(FrozenPool::kShare * cache.pages()); }

}  // namespace

void FrozenPool::check(size_t tokens) const {
  const auto block = static_cast<size_t>(index_.block());
  if (tokens < block) {
    throw InputError(fmt::format("a frozen text of {} tokens: text is found in blocks of {}", tokens, block),
                     "freeze a longer text");
  }
  const int most = most_pages(cache_);
  if (tokens / block > static_cast<size_t>(most)) {
    throw InputError(fmt::format("a frozen text of {} tokens: all of them may have {} ({}% of the pool)", tokens,
                                 static_cast<size_t>(most) * block, static_cast<int>(100 * kShare)),
                     "freeze a shorter text, or give the server more memory for its pool");
  }
}

uint64_t FrozenPool::add(std::string_view tenant, std::string_view extra_key, std::span<const int32_t> tokens,
                         std::span<const int32_t> pages) {
  const int block = index_.block();
  Kept kept;
  kept.text.tenant = tenant;
  kept.text.extra_key = extra_key;
  kept.space = index_.space(tenant, extra_key);
  for (const int32_t page : pages) {
    const uint64_t serial = cache_.serial(page);
    const auto begun = static_cast<int32_t>(kept.views.size()) * block;
    if (serial == 0 || static_cast<size_t>(begun + block) > tokens.size()) break;
    kept.views.push_back({.pages = {page, page}, .serials = {serial, serial}, .slot = 0, .position = begun});
  }
  kept.text.pages = static_cast<int>(kept.views.size());
  kept.text.tokens = kept.text.pages * block;
  if (kept.views.empty()) return 0;
  kept.tokens.assign(tokens.begin(), tokens.begin() + kept.text.tokens);
  drop_gone();
  const auto same = std::find_if(texts_.begin(), texts_.end(),
                                 [&](const Kept& other) { return other.space == kept.space && other.tokens == kept.tokens; });
  if (same != texts_.end()) return same->text.id;
  while (!texts_.empty() && pages_of_all() + kept.text.pages > most_pages(cache_)) {
    drop(
        std::min_element(texts_.begin(), texts_.end(), [](const Kept& a, const Kept& b) { return a.text.found < b.text.found; }));
  }
  kept.text.id = ++last_id_;
  for (size_t i = 0; i < kept.views.size(); ++i) index_.offer(kept.space, block_of(kept, i), kept.views[i]);
  freeze(kept);
  texts_.push_back(std::move(kept));
  seen_ = -1;
  return last_id_;
}

bool FrozenPool::remove(uint64_t id) {
  drop_gone();
  const auto found = std::find_if(texts_.begin(), texts_.end(), [&](const Kept& kept) { return kept.text.id == id; });
  if (found == texts_.end()) return false;
  drop(found);
  return true;
}

void FrozenPool::count(uint64_t id) {
  for (Kept& kept : texts_) {
    if (kept.text.id == id) ++kept.text.found;
  }
}

std::vector<FrozenText> FrozenPool::texts() {
  drop_gone();
  std::vector<FrozenText> texts;
  for (const Kept& kept : texts_) texts.push_back(kept.text);
  return texts;
}

void FrozenPool::stay() {
  if (texts_.empty() || seen_ == cache_.idled()) return;
  drop_gone();
  std::vector<size_t> order(texts_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return texts_[a].text.found < texts_[b].text.found; });
  for (const size_t i : order) {
    for (const SegmentIndex::View& view : texts_[i].views) cache_.touch(view.pages[0]);
  }
  seen_ = cache_.idled();
}

std::span<const int32_t> FrozenPool::block_of(const Kept& kept, size_t block) const {
  const auto tokens = static_cast<size_t>(index_.block());
  return std::span(kept.tokens).subspan(block * tokens, tokens);
}

bool FrozenPool::is_there(const Kept& kept) const {
  return std::all_of(kept.views.begin(), kept.views.end(),
                     [&](const SegmentIndex::View& view) { return cache_.serial(view.pages[0]) == view.serials[0]; });
}

int FrozenPool::pages_of_all() const {
  return std::accumulate(texts_.begin(), texts_.end(), 0, [](int sum, const Kept& kept) { return sum + kept.text.pages; });
}

void FrozenPool::drop_gone() {
  for (auto next = texts_.begin(); next != texts_.end();) {
    if (is_there(*next)) {
      ++next;
    } else {
      const auto place = next - texts_.begin();
      drop(next);
      next = texts_.begin() + place;
    }
  }
}

void FrozenPool::drop(Texts::iterator kept) {
  const Kept gone = std::move(*kept);
  texts_.erase(kept);
  for (size_t i = 0; i < gone.views.size(); ++i) index_.forget(gone.space, block_of(gone, i));
  // Blocks that another text has, too.
  for (const Kept& other : texts_) {
    if (other.space != gone.space || !is_there(other)) continue;
    for (size_t i = 0; i < other.views.size(); ++i) {
      if (index_.find(other.space, block_of(other, i)) == nullptr) index_.offer(other.space, block_of(other, i), other.views[i]);
    }
    freeze(other);
  }
}

void FrozenPool::freeze(const Kept& kept) {
  for (size_t i = 0; i < kept.views.size(); ++i) index_.freeze(kept.space, block_of(kept, i), kept.text.id);
}

}  // namespace sluice
