#include "agents/generation/stop_strings.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

/// Bytes at the end of `text` that `string` begins with.
size_t begun(std::string_view text, std::string_view string) {
  for (size_t length = std::min(text.size(), string.size() - 1); length > 0; --length) {
    if (text.ends_with(string.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string StopStrings::add(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (const std::string& string : strings_) first = std::min(first, held_.find(string));
  if (first != std::string::npos) {
    found_ = true;
    return std::exchange(held_, {}).substr(0, first);
  }
  size_t kept = 0;
  for (const std::string& string : strings_) kept = std::max(kept, begun(held_, string));
  std::string text = held_.substr(0, held_.size() - kept);
  held_.erase(0, text.size());
  return text;
}

std::string StopStrings::end() { return std::exchange(held_, {}); }

}  // namespace sluice
