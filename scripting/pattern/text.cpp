#include "scripting/pattern/text.h"

#include <fmt/format.h>

#include <vector>

#include "scripting/base/error.h"

namespace sluice {
namespace {

std::string size_text(int size) { return size == kUnbounded ? "math.huge" : fmt::format("{}", size); }

/// "name = {a, b}", or nothing where both are what they are by default.
void add_pair(std::vector<std::string>& options, const char* name, const std::string& a, const std::string& b,
              const std::string& otherwise) {
  if (a != otherwise || b != otherwise) options.push_back(fmt::format("{} = {{{}, {}}}", name, a, b));
}

std::string rect_text(const PatternRect& rect) {
  if (PatternRect{.columns = rect.columns} == rect && rect.columns != kUnbounded) return fmt::format("sink({})", rect.columns);
  std::vector<std::string> options;
  const auto number = [](int value) { return fmt::format("{}", value); };
  add_pair(options, "size", size_text(rect.rows), size_text(rect.columns), "math.huge");
  add_pair(options, "at", number(rect.row), number(rect.column), "0");
  add_pair(options, "stride", number(rect.row_stride), number(rect.column_stride), "1");
  add_pair(options, "offset", number(rect.row_offset), number(rect.column_offset), "0");
  return fmt::format("rect{{{}}}", fmt::join(options, ", "));
}

std::string diag_text(const PatternDiag& diag) {
  if (diag == PatternDiag{}) return "causal()";
  if (diag == PatternDiag{.size = diag.size}) return fmt::format("window({})", diag.size);
  if (diag == PatternDiag{.size = diag.size, .stride = diag.stride} && diag.size != kUnbounded && diag.size % diag.stride == 0) {
    return fmt::format("dilated({}, {})", diag.size / diag.stride, diag.stride);
  }
  std::vector<std::string> options;
  if (diag.offset != 0) options.push_back(fmt::format("offset = {}", diag.offset));
  if (diag.size != kUnbounded) options.push_back(fmt::format("size = {}", diag.size));
  if (diag.stride != 1) options.push_back(fmt::format("stride = {}", diag.stride));
  return fmt::format("diag{{{}}}", fmt::join(options, ", "));
}

std::string node_text(const Pattern& pattern, int place);

/// In parentheses where Lua would read it otherwise, and where a reader would have to know the order of operators.
std::string operand_text(const Pattern& pattern, int place, Pattern::Kind user) {
  const Pattern::Kind kind = pattern.nodes()[static_cast<size_t>(place)].kind;
  const bool is_plain = kind == Pattern::Kind::kRect || kind == Pattern::Kind::kDiag || kind == Pattern::Kind::kNot ||
                        (kind == user && (kind == Pattern::Kind::kAnd || kind == Pattern::Kind::kOr));
  const std::string text = node_text(pattern, place);
  return is_plain ? text : fmt::format("({})", text);
}

std::string node_text(const Pattern& pattern, int place) {
  const Pattern::Node& node = pattern.nodes()[static_cast<size_t>(place)];
  const auto operand = [&](int at) { return operand_text(pattern, at, node.kind); };
  switch (node.kind) {
    case Pattern::Kind::kRect:
      return rect_text(node.rect);
    case Pattern::Kind::kDiag:
      return diag_text(node.diag);
    case Pattern::Kind::kNot:
      return "~" + operand(node.left);
    case Pattern::Kind::kAnd:
      return operand(node.left) + " & " + operand(node.right);
    case Pattern::Kind::kOr:
      return operand(node.left) + " | " + operand(node.right);
    case Pattern::Kind::kSpread:
      return operand(node.left) + " >> " + operand(node.right);
  }
  throw InternalError("a pattern with a part of an unknown kind");
}

}  // namespace

std::string to_text(const HeadPatterns& patterns) {
  if (patterns.is_same()) return to_text(patterns.of_head(0));
  std::string text;
  for (const Pattern& each : patterns.each()) text += (text.empty() ? "" : ", ") + to_text(each);
  return fmt::format("by_head{{{}}}", text);
}

std::string to_text(const Pattern& pattern) { return node_text(pattern, static_cast<int>(pattern.nodes().size()) - 1); }

}  // namespace sluice
