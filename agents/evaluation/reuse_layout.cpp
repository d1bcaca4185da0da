#include "agents/evaluation/reuse_layout.h"

#include <algorithm>
#include <cmath>

namespace sluice {

std::vector<Segment> segments_of(const ReuseLayout& layout, int tokens, int block) {
  const int of_least = static_cast<int>(layout.share * tokens / std::max(1, layout.least));
  const int segment = std::min(layout.segment, of_least) / block * block;
  if (segment < block) return {};
  const int count = static_cast<int>(layout.share * tokens / segment);
  const int left = tokens - count * segment;
  if (left < count + 1) return {};
  std::vector<Segment> segments;
  for (int i = 0; i < count; ++i) {
    const auto first = static_cast<int>(int64_t{left} * (i + 1) / (count + 1)) + i * segment;
    segments.push_back({first, first + segment, {}});
  }
  return segments;
}

KnownText known_text(std::span<const int32_t> document, std::span<const Segment> segments) {
  KnownText known;
  for (size_t i = segments.size(); i-- > 0;) {
    const int begin = i == 0 ? 0 : segments[i - 1].end;
    const auto before = document.subspan(static_cast<size_t>(begin), static_cast<size_t>(segments[i].first - begin));
    known.tokens.insert(known.tokens.end(), before.begin(), before.end());
    const auto first = static_cast<int>(known.tokens.size());
    const auto text =
        document.subspan(static_cast<size_t>(segments[i].first), static_cast<size_t>(segments[i].end - segments[i].first));
    known.tokens.insert(known.tokens.end(), text.begin(), text.end());
    known.segments.push_back({first, static_cast<int>(known.tokens.size()), segments[i].extra_key});
  }
  // Pages are known once they are full.
  const size_t behind = segments.empty() ? document.size() : static_cast<size_t>(segments.back().end);
  known.tokens.insert(known.tokens.end(), document.begin() + static_cast<ptrdiff_t>(behind), document.end());
  return known;
}

}  // namespace sluice
