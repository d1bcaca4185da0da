#include "agents/tasks/math_answer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace sluice {
namespace {

/// The text inside the brace that opens at `open`, if it is closed.
std::optional<std::string_view> braced(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;  // \{ and \} are signs, not braces
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return text.substr(open + 1, i - open - 1);
    }
  }
  return std::nullopt;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// \text{x} -> x, for commands that only change the type.
void unwrap(std::string& text, std::string_view command) {
  for (size_t at = text.find(command); at != std::string::npos; at = text.find(command, at)) {
    const auto inside = braced(text, at + command.size() - 1);
    if (!inside) return;
    const std::string content(*inside);
    text.replace(at, command.size() + content.size() + 1, content);
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// "1,234,567" -> "1234567"; "(1,2)" and "1,23" stay.
void remove_thousands(std::string& text) {
  for (size_t i = 1; i + 3 < text.size(); ++i) {
    const bool group =
        text[i] == ',' && is_digit(text[i - 1]) && is_digit(text[i + 1]) && is_digit(text[i + 2]) && is_digit(text[i + 3]);
    const bool ends = i + 4 >= text.size() || !is_digit(text[i + 4]);
    // Inside brackets a comma lists things.
    if (group && ends && text.find_first_of("([{") == std::string::npos) text.erase(i--, 1);
  }
}

std::optional<double> decimal(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789.-e") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// The digits of an integer, also one written 7.0, without signs and zeros that change nothing. Large ones differ by less than
/// numbers can tell.
std::optional<std::string> integer_digits(std::string_view text) {
  const bool negative = text.substr(0, 1) == "-";
  if (negative || text.substr(0, 1) == "+") text.remove_prefix(1);
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view rest = text.substr(end);
  if (end == 0 || (!rest.empty() && (rest.front() != '.' || rest.find_first_not_of('0', 1) != std::string_view::npos))) {
    return std::nullopt;
  }
  const size_t first = text.substr(0, end).find_first_not_of('0');
  if (first == std::string_view::npos) return "0";
  return (negative ? "-" : "") + std::string(text.substr(first, end - first));
}

std::optional<double> ratio(std::optional<double> numerator, std::optional<double> denominator) {
  if (!numerator || !denominator || *denominator == 0) return std::nullopt;
  return *numerator / *denominator;
}

/// The value of a normalised answer that is a number.
std::optional<double> value_of(std::string_view text) {
  if (const auto number = decimal(text)) return number;
  double sign = 1;
  if (!text.empty() && text.front() == '-') {
    sign = -1;
    text.remove_prefix(1);
  }
  std::optional<double> value;
  constexpr std::string_view kFraction = "\\frac";
  if (text.substr(0, kFraction.size()) == kFraction) {
    const size_t first = kFraction.size();
    if (first < text.size() && text[first] == '{') {
      const auto numerator = braced(text, first);
      if (!numerator) return std::nullopt;
      const size_t second = first + numerator->size() + 2;
      if (second < text.size() && text[second] == '{') {
        const auto denominator = braced(text, second);
        if (denominator && second + denominator->size() + 2 == text.size()) {
          value = ratio(decimal(*numerator), decimal(*denominator));
        }
      }
    } else if (text.size() == first + 2) {  // \frac12
      value = ratio(decimal(text.substr(first, 1)), decimal(text.substr(first + 1)));
    }
  } else if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    value = ratio(decimal(text.substr(0, slash)), decimal(text.substr(slash + 1)));
  }
  if (value) *value *= sign;
  return value;
}

}  // namespace

std::optional<std::string> last_boxed(std::string_view text) {
  constexpr std::array<std::string_view, 2> kCommands = {"\\boxed", "\\fbox"};
  for (size_t from = text.size(); from > 0;) {
    size_t at = std::string_view::npos;
    size_t length = 0;
    for (const std::string_view command : kCommands) {
      const size_t found = text.rfind(command, from - 1);
      if (found != std::string_view::npos && (at == std::string_view::npos || found > at)) {
        at = found;
        length = command.size();
      }
    }
    if (at == std::string_view::npos) return std::nullopt;
    const size_t open = text.find_first_not_of(' ', at + length);
    if (open != std::string_view::npos && text[open] == '{') {
      if (const auto inside = braced(text, open)) return std::string(*inside);
    }
    from = at;
  }
  return std::nullopt;
}

std::string normalised_answer(std::string_view answer) {
  std::string text(answer);
  for (const char* command : {"\\text{", "\\mathrm{", "\\textbf{", "\\mathbf{"}) unwrap(text, command);
  for (const char* noise :
       {"\\left", "\\right", "\\!", "\\,", "\\;", "\\:", "\\ ", "^\\circ", "^{\\circ}", "\\circ", "\\%", "%", "\\$", "$"}) {
    replace_all(text, noise, "");
  }
  replace_all(text, "\\dfrac", "\\frac");
  replace_all(text, "\\tfrac", "\\frac");
  replace_all(text, "{,}", ",");
  std::string compact;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') continue;
    compact += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  while (!compact.empty() && compact.back() == '.') compact.pop_back();
  if (compact.size() >= 2 && compact.front() == '{') {
    const auto inside = braced(compact, 0);
    if (inside && inside->size() + 2 == compact.size()) compact = std::string(*inside);
  }
  remove_thousands(compact);
  return compact;
}

bool same_answer(std::string_view left, std::string_view right) {
  const std::string a = normalised_answer(left);
  const std::string b = normalised_answer(right);
  if (a == b) return !a.empty();
  const auto digits = integer_digits(a);
  const auto other_digits = integer_digits(b);
  if (digits && other_digits) return *digits == *other_digits;
  const auto x = value_of(a);
  const auto y = value_of(b);
  return x && y && std::abs(*x - *y) <= 1e-9 * std::max(std::abs(*x), std::abs(*y));
}

}  // namespace sluice
