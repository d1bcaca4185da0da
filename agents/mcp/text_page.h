#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::mcp {

/// Most bytes of a text, or of structured content as JSON, in one answer. Claude Code takes 25,000 tokens of a tool, and JSON has
/// hardly fewer than 2.5 bytes a token.
constexpr size_t kMostBytes = 48'000;

/// Some lines of a text.
struct TextPage {
  std::string text;
  int64_t next_line = 0;  // where the rest begins, from 1; 0: there is none
  int64_t lines = 0;      // of the whole text, where there is a rest
};

/// The lines of `text` from `line` (from 1) on, as many as have room in `most` bytes, and at least one, which is cut if it alone
/// is longer.
TextPage page_of(const std::string& text, int64_t line, size_t most = kMostBytes);

/// Removes items from the end of an array until it has room in `most` bytes as JSON. How many were removed.
size_t cut_list(nlohmann::json& list, size_t most = kMostBytes);

/// `text` with at most `most` bytes, cut before a character of UTF-8; what is missing is told behind it: "... (7 more bytes)".
std::string shortened(const std::string& text, size_t most);

}  // namespace sluice::mcp
