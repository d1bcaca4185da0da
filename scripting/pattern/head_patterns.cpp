#include "scripting/pattern/head_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {

HeadPatterns HeadPatterns::of(std::vector<Pattern> heads) {
  if (heads.empty()) throw InputError("by_head: patterns of no head");
  HeadPatterns patterns;
  patterns.heads_ = std::move(heads);
  std::vector<Pattern>& each = patterns.heads_;
  for (size_t period = 1; period < each.size(); ++period) {
    if (each.size() % period != 0) continue;
    if (!std::equal(each.begin() + static_cast<ptrdiff_t>(period), each.end(), each.begin())) continue;
    each.erase(each.begin() + static_cast<ptrdiff_t>(period), each.end());
  }
  if (each.size() > kMost)
    throw InputError(fmt::format("by_head: patterns of {} heads, at most {} are told apart", each.size(), kMost));
  return patterns;
}

Pattern HeadPatterns::any(int heads) const {
  std::vector<Pattern> different;
  for (int head = 0; head < std::min(heads, size()); ++head) {
    if (std::find(different.begin(), different.end(), of_head(head)) == different.end()) different.push_back(of_head(head));
  }
  Pattern all = different.at(0);
  for (size_t i = 1; i < different.size(); ++i) all = all | different[i];
  return all;
}

}  // namespace sluice
