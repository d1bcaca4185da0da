#include "agents/evaluation/reuse_layout.h"

#include <algorithm>
#include <cstdlib>

namespace sluice {

std::vector<Segment> segments_of(const ReuseLayout& layout, int tokens, int block, std::span<const int> cuts) {
  constexpr int kLeastGap = 16;  // new tokens between two segments
  // Before the first: no page of them is full, which later questions would find as the beginning of their prompt.
  constexpr int kBefore = 7;
  const int of_least = static_cast<int>(layout.share * tokens / std::max(1, layout.least));
  const int segment = std::min(layout.segment, of_least) / block * block;
  if (segment < block) return {};
  const int count = std::min(static_cast<int>(layout.share * tokens / segment), (tokens - kLeastGap) / (segment + kLeastGap));
  const int left = tokens - count * segment;
  std::vector<int> firsts;
  for (int i = 0; i < count; ++i) {
    const int usual = kBefore + static_cast<int>(int64_t{left - kBefore} * i / count) + i * segment;
    const int least = firsts.empty() ? kBefore : firsts.back() + block + kLeastGap;
    int first = std::max(usual, least);
    int nearest = segment / 2;
    for (const int cut : cuts) {
      if (firsts.empty() || cut < least || std::abs(cut - usual) >= nearest) continue;
      nearest = std::abs(cut - usual);
      first = cut;
    }
    firsts.push_back(first);
  }
  std::vector<Segment> segments;
  for (size_t i = 0; i < firsts.size(); ++i) {
    const int end = i + 1 < firsts.size() ? firsts[i + 1] : tokens;
    const int longest = cuts.empty() ? segment : segment + segment / 2;
    const int length = std::min(longest, end - kLeastGap - firsts[i]) / block * block;
    if (length > 0) segments.push_back({firsts[i], firsts[i] + length, {}});
  }
  return segments;
}

KnownText known_text(std::span<const int32_t> document, std::span<const Segment> segments) {
  KnownText known;
  const auto append = [&](int first, int end) {
    known.tokens.insert(known.tokens.end(), document.begin() + first, document.begin() + end);
  };
  for (size_t i = segments.size(); i-- > 0;) {
    const auto first = static_cast<int>(known.tokens.size());
    append(segments[i].first, segments[i].end);
    known.segments.push_back({first, static_cast<int>(known.tokens.size()), segments[i].extra_key});
  }
  int before = 0;
  for (const Segment& segment : segments) {
    append(before, segment.first);
    before = segment.end;
  }
  append(before, static_cast<int>(document.size()));  // and the last page of a segment is full
  return known;
}

}  // namespace sluice
