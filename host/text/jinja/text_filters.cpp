#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/methods.h"
#include "host/text/jinja/operations.h"
#include "host/text/jinja/text_methods.h"
#include "scripting/base/unicode.h"

namespace sluice::jinja {
namespace {

/// The method of the same name, of the input's text.
Value by_method(Run& run, std::string_view name, const Value& input, const Arguments& arguments) {
  return find_text_method(name)(run, text_of(run, input), arguments);
}

Value trim(Run& run, const Value& input, const Arguments& arguments) { return by_method(run, "strip", input, arguments); }
Value upper(Run& run, const Value& input, const Arguments& arguments) { return by_method(run, "upper", input, arguments); }
Value lower(Run& run, const Value& input, const Arguments& arguments) { return by_method(run, "lower", input, arguments); }
Value capitalize(Run& run, const Value& input, const Arguments& arguments) {
  return by_method(run, "capitalize", input, arguments);
}

/// Other than the method it begins words at spaces, hyphens and opening brackets alone.
Value title(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "title", arguments, {});
  const std::string_view text = text_of(run, input);
  run.look_up(text.size());
  run.charge(text.size());
  std::string result;
  bool begins = true;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    length = character_length(text, at);
    const bool separates = space_length(text, at) > 0 || std::string_view("-({[<").find(text[at]) != std::string_view::npos;
    append_cased(result, text.substr(at, length), begins && !separates ? Case::kUpper : Case::kLower);
    begins = separates;
  }
  return run.keep(std::move(result));
}

Value replace_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "replace", arguments, {"old", "new", "count"}, 2);
  return replace(run, text_of(run, input), text_of(run, given.at(0)), text_of(run, given.at(1)), given.integer(2, -1));
}

Value indent(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "indent", arguments, {"width", "first", "blank"});
  const bool is_text = given.has(0) && as_text(given.at(0)) != nullptr;
  const int64_t width = is_text ? 0 : std::max<int64_t>(0, given.integer(0, 4));
  run.charge(static_cast<size_t>(width));
  const std::string filler = is_text ? std::string(given.text(0)) : std::string(static_cast<size_t>(width), ' ');
  const bool blank = given.boolean(2, false);
  if (as_text(input) == nullptr) run.fail(fmt::format("indent does not take a {}", type_of(input)));
  const Value text = arithmetic(run, "+", input, std::string_view("\n"));
  Writer writer(run);
  bool first = true;
  for (const Value& line : as_list(find_text_method("splitlines")(run, text, {}))->items) {
    const std::string_view content = std::get<std::string_view>(line);
    if (!first) writer.add("\n");
    if (first ? given.boolean(1, false) : (blank || !content.empty())) writer.add(filler);
    writer.add(content);
    first = false;
  }
  return writer.done();
}

Value string(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "string", arguments, {});
  return text_of(run, input);
}

/// Runs of letters, digits and _.
Value wordcount(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "wordcount", arguments, {});
  const std::string_view text = text_of(run, input);
  run.walk(text.size());
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += character_length(text, at)) {
    const char32_t character = character_at(text, at);
    const bool belongs = character == '_' || is_letter(character) || is_decimal(character);
    if (belongs && !in_word) ++words;
    in_word = belongs;
  }
  return words;
}

Value format(Run& run, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty()) run.fail("format: values by name are not supported");
  return percent_format(run, text_of(run, input), run.keep(arguments.values, List::Kind::kTuple));
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {{"trim", trim},     {"upper", upper},
                                    {"lower", lower},   {"capitalize", capitalize},
                                    {"title", title},   {"replace", replace_filter},
                                    {"indent", indent}, {"string", string},
                                    {"safe", string},   {"wordcount", wordcount},
                                    {"format", format}};

}  // namespace

Filter find_text_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& one) { return one.name == name; });
  return found == std::end(kFilters) ? nullptr : found->filter;
}

}  // namespace sluice::jinja
