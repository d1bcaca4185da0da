#include "agents/mcp/text_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "agents/http/http_problem.h"

namespace sluice::mcp {
namespace {

/// Where line `line` begins; the size of the text if there is no such line.
size_t start_of(const std::string& text, int64_t line) {
  size_t at = 0;
  for (int64_t i = 1; i < line && at < text.size(); ++i) at = std::min(text.find('\n', at), text.size() - 1) + 1;
  return at;
}

}  // namespace

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return fmt::format("{}... ({} more bytes)", text.substr(0, end), text.size() - end);
}

TextPage page_of(const std::string& text, int64_t line, size_t most) {
  const size_t start = start_of(text, line);
  if (text.size() - start <= most) return {text.substr(start), 0};
  const size_t last_break = text.rfind('\n', start + most - 1);
  const bool has_break = last_break != std::string::npos && last_break >= start;
  TextPage page;
  page.text = has_break ? text.substr(start, last_break + 1 - start)
                        : shortened(text.substr(start, text.find('\n', start) - start), most);
  const size_t next = has_break ? last_break + 1 : text.find('\n', start + most);
  if (next == std::string::npos) return page;
  const auto breaks = [&](size_t end) { return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n'); };
  page.lines = breaks(text.size()) + (text.ends_with('\n') ? 0 : 1);
  page.next_line = breaks(std::max(next, start + 1)) + (has_break ? 1 : 2);
  return page;
}

size_t cut_list(nlohmann::json& list, size_t most) {
  size_t bytes = 2;
  size_t kept = 0;
  for (const nlohmann::json& item : list) {
    bytes += json_text(item).size() + 1;
    if (bytes > most) break;
    ++kept;
  }
  const size_t removed = list.size() - kept;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept), list.end());
  return removed;
}

}  // namespace sluice::mcp
