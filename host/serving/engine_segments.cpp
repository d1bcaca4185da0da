// Where the text of segments lies: it is looked for and copied for whoever begins, and offered to others by whoever has computed
// it.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "host/serving/engine_state.h"

namespace sluice {
namespace {

/// The tokens that lie in one page, before and after, of a run that lies in up to two.
void add_runs(const SegmentIndex::View& view, int first, int tokens, std::span<const int32_t> pages, int page,
              std::vector<ShiftedRun>& runs) {
  for (int done = 0; done < tokens;) {
    const int from = view.slot + done;
    const int to = first + done;
    const int count = std::min({tokens - done, page - from % page, page - to % page});
    runs.push_back({.from_page = view.pages[from < page ? 0 : 1],
                    .from_token = from % page,
                    .to_page = pages[static_cast<size_t>(to / page)],
                    .to_token = to % page,
                    .tokens = count,
                    .from_position = view.position + done,
                    .to_position = to});
    done += count;
  }
}

}  // namespace

void Engine::State::find_blocks(const EngineJob& job, const Segment& segment, ReuseWork& work) const {
  SegmentIndex& index = *kv->segments();
  CopiedTokens& found = work.tokens;
  const int block = found.block;
  const SegmentIndex::Digest space = index.space(job.request.tenant, segment.extra_key);
  const SegmentIndex::Digest of_flow = index.space(job.request.tenant, segment.extra_key, flow_key);
  const auto find_there = [&](const SegmentIndex::Digest& where, std::span<const int32_t> run) -> const SegmentIndex::View* {
    const SegmentIndex::View* const view = index.find(where, run);
    if (view == nullptr || is_there(*view)) return view;
    index.forget(where, run);
    return nullptr;
  };
  bool follows = false;  // a block that is copied
  for (int first = segment.first; first + block <= std::min(segment.end, job.stored_tokens()); first += block) {
    const bool is_next = std::exchange(follows, false);
    if (first < job.computed) continue;  // of the prefix that is known, which is exact
    const auto run = std::span<const int32_t>(job.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(block));
    const SegmentIndex::View* view = find_there(space, run);
    if (view == nullptr && !flow_key.empty()) view = find_there(of_flow, run);
    if (view == nullptr) continue;
    work.blocks.push_back({first, *view});
    std::fill_n(found.copied.begin() + first, block, 1);
    std::fill_n(found.moved.begin() + first, block, first - view->position);
    for (const int32_t page : view->pages) cache.touch(page);
    if (!kv->frozen()->is_empty()) work.frozen.insert(index.frozen_text(space, run));
    const bool is_beside = is_next && found.moved[static_cast<size_t>(first) - 1] == first - view->position;
    if (!is_beside) found.firsts.push_back(first);
    found.ends_known = found.ends_known || segment.end == static_cast<int>(job.tokens.size());
    follows = true;
  }
}

void Engine::State::copy_blocks(const EngineJob& job, ReuseWork& work, int first_layer) const {
  std::vector<ShiftedRun> runs;
  for (const FoundBlock& block : work.blocks)
    add_runs(block.view, block.first, work.tokens.block, job.pages(), cache.page(), runs);
  work.blocks.clear();
  device.copy_shifted(pool, {.group = 0, .first = first_layer}, runs, config.rope);
}

void Engine::State::lose_taken_blocks(ReuseWork& work) const {
  std::erase_if(work.blocks, [&](const FoundBlock& block) {
    if (is_there(block.view)) return false;
    work.tokens.lose_block(block.first);
    return true;
  });
}

bool Engine::State::is_there(const SegmentIndex::View& view) const {
  for (size_t i = 0; i < view.pages.size(); ++i) {
    if (view.serials[i] == 0 || cache.serial(view.pages[i]) != view.serials[i]) return false;
  }
  return true;
}

void Engine::State::offer_segments(const EngineJob& job) const {
  if (kv->segments() == nullptr || job.own_pages) return;
  for (const Segment& segment : segments_of(job)) offer_segment(job, segment);
}

void Engine::State::offer_last_segments(EngineJob& job) {
  if (kv->segments() == nullptr || job.own_pages) return;
  // A block may end in a page that is not full, or that a flow has decoded.
  const int block = kv->segments()->block();
  int end = 0;
  for (const Segment& segment : segments_of(job)) {
    const int tokens = std::min(segment.end, offered_tokens(job)) - segment.first;
    if (tokens >= block) end = std::max(end, segment.first + tokens / block * block);
  }
  scheduler.publish_rest(job, end);
  offer_segments(job);
}

int Engine::State::offered_tokens(const EngineJob& job) const {
  return flow_key.empty() ? scheduler.offered_tokens(job) : Scheduler::known_tokens(job);
}

std::vector<Segment> Engine::State::segments_of(const EngineJob& job) {
  std::vector<Segment> segments = job.request.segments;
  if (job.request.answer_extra_key)
    segments.push_back({job.prompt, static_cast<int>(job.tokens.size()), *job.request.answer_extra_key});
  return segments;
}

void Engine::State::offer_segment(const EngineJob& job, const Segment& segment) const {
  SegmentIndex& index = *kv->segments();
  const int page = cache.page();
  const int block = index.block();
  const int common = scheduler.offered_tokens(job);
  const SegmentIndex::Digest of_all = index.space(job.request.tenant, segment.extra_key);
  const SegmentIndex::Digest of_flow = index.space(job.request.tenant, segment.extra_key, flow_key);
  // It may have had to give up its pages.
  const int end = std::min({segment.end, offered_tokens(job), static_cast<int>(job.pages().size()) * page});
  for (int first = segment.first; first + block <= end; first += block) {
    // Copies are made of what was computed, never of copies.
    const auto is_turned = [&](int token) {
      return token < static_cast<int>(job.turned.size()) && job.turned[static_cast<size_t>(token)] != 0;
    };
    bool is_copy = false;
    for (int token = first; token < first + block; ++token) is_copy = is_copy || is_turned(token);
    if (is_copy) continue;
    const std::array pages = {job.pages()[static_cast<size_t>(first / page)],
                              job.pages()[static_cast<size_t>((first + block - 1) / page)]};
    const SegmentIndex::View view{pages, {cache.serial(pages[0]), cache.serial(pages[1])}, first % page, first};
    if (!is_there(view)) continue;  // nobody else will know these pages
    const auto run = std::span<const int32_t>(job.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(block));
    const SegmentIndex::Digest& space = first + block <= common ? of_all : of_flow;
    const SegmentIndex::View* const known = index.find(space, run);
    if (known == nullptr || !is_there(*known)) index.offer(space, run, view);
  }
}

}  // namespace sluice
