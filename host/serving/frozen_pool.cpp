#include "host/serving/frozen_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_set>

#include "scripting/base/error.h"

namespace sluice {
namespace {

int most_pages(const PageCache& cache) { return static_cast<int>(FrozenPool::kShare * cache.pages()); }

}  // namespace

void FrozenPool::check(std::string_view tenant, std::string_view extra_key, std::span<const int32_t> tokens) {
  const auto block = static_cast<size_t>(index_.block());
  if (tokens.size() < block) {
    throw InputError(fmt::format("a frozen text of {} tokens: text is found in blocks of {}", tokens.size(), block),
                     "freeze a longer text");
  }
  drop_gone();
  const auto whole = tokens.first(tokens.size() / block * block);
  if (find(index_.space(tenant, extra_key), whole) != texts_.end()) return;
  const int most = most_pages(cache_);
  const int left = most - pages();
  if (static_cast<int64_t>(whole.size() / block) <= left) return;
  throw InputError(fmt::format("a frozen text of {} tokens: {} of the {} that all of them may have ({}% of the pool) are left",
                               tokens.size(), static_cast<size_t>(std::max(0, left)) * block, static_cast<size_t>(most) * block,
                               static_cast<int>(100 * kShare)),
                   "remove a frozen text, freeze a shorter one, or give the server more memory for its pool");
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
    const int32_t begun = static_cast<int32_t>(kept.views.size()) * block;
    if (serial == 0 || begun + block > static_cast<int64_t>(tokens.size())) break;
    kept.views.push_back({.pages = {page, page}, .serials = {serial, serial}, .slot = 0, .position = begun});
  }
  kept.text.pages = static_cast<int>(kept.views.size());
  kept.text.tokens = kept.text.pages * block;
  if (kept.views.empty()) return 0;
  kept.tokens.assign(tokens.begin(), tokens.begin() + kept.text.tokens);
  drop_gone();
  if (const auto same = find(kept.space, kept.tokens); same != texts_.end()) return same->text.id;
  if (pages_with(kept.views) > most_pages(cache_)) return 0;
  kept.text.id = ++last_id_;
  freeze(kept);
  texts_.push_back(std::move(kept));
  seen_ = -1;
  return last_id_;
}

bool FrozenPool::remove(uint64_t id) {
  drop_gone();
  const auto found = std::find_if(texts_.begin(), texts_.end(), [&](const Kept& kept) { return kept.text.id == id; });
  if (found == texts_.end()) return false;
  std::rotate(found, found + 1, texts_.end());
  drop_from(texts_.end() - 1);
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
    // The end of a text goes before its beginning, without which it would not be found as a prefix.
    for (auto view = texts_[i].views.rbegin(); view != texts_[i].views.rend(); ++view) cache_.touch(view->pages[0]);
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

FrozenPool::Texts::iterator FrozenPool::find(const SegmentIndex::Digest& space, std::span<const int32_t> tokens) {
  return std::find_if(texts_.begin(), texts_.end(), [&](const Kept& kept) {
    return kept.space == space && std::equal(tokens.begin(), tokens.end(), kept.tokens.begin(), kept.tokens.end());
  });
}

int FrozenPool::pages_with(std::span<const SegmentIndex::View> more) const {
  std::unordered_set<int32_t> pages;
  const auto add = [&](std::span<const SegmentIndex::View> views) {
    for (const SegmentIndex::View& view : views) pages.insert(view.pages[0]);
  };
  for (const Kept& kept : texts_) add(kept.views);
  add(more);
  return static_cast<int>(pages.size());
}

void FrozenPool::drop_gone() {
  const auto gone = std::stable_partition(texts_.begin(), texts_.end(), [&](const Kept& kept) { return is_there(kept); });
  if (gone != texts_.end()) drop_from(gone);
}

void FrozenPool::drop_from(Texts::iterator first) {
  const Texts gone(std::make_move_iterator(first), std::make_move_iterator(texts_.end()));
  texts_.erase(first, texts_.end());
  for (const Kept& kept : gone) {
    for (size_t i = 0; i < kept.views.size(); ++i) index_.forget(kept.space, block_of(kept, i));
  }
  for (const Kept& other : texts_) {
    const bool may_share = std::any_of(gone.begin(), gone.end(), [&](const Kept& kept) { return kept.space == other.space; });
    if (may_share) freeze(other);
  }
}

void FrozenPool::freeze(const Kept& kept) {
  for (size_t i = 0; i < kept.views.size(); ++i) {
    const std::span<const int32_t> block = block_of(kept, i);
    if (index_.frozen_text(kept.space, block) != 0) continue;  // another text's, too
    index_.offer(kept.space, block, kept.views[i]);
    index_.freeze(kept.space, block, kept.text.id);
  }
}

}  // namespace sluice
