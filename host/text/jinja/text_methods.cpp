#include "host/text/jinja/text_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/methods.h"
#include "host/text/jinja/operations.h"
#include "scripting/base/unicode.h"

namespace sluice::jinja {
namespace {

std::string_view text(const Value& owner) { return std::get<std::string_view>(owner); }

/// Text made by `transform`, which writes no more than three bytes for one.
template <class Transform>
Value transformed(Run& run, std::string_view text, Transform transform) {
  run.look_up(text.size());
  run.charge(text.size());
  return run.keep(transform(text));
}

template <bool left, bool right>
Value strip_method(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "strip", arguments, {"chars"});
  const size_t unwanted = given.has(0) ? given.text(0).size() : 0;
  run.step(1 + text(owner).size() / 16 * (1 + unwanted / 16));
  return strip(text(owner), left, right, given.has(0) ? std::optional(given.text(0)) : std::nullopt);
}

template <Case wanted>
Value case_method(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "upper or lower", arguments, {});
  return transformed(run, text(owner), [](std::string_view text) { return cased(text, wanted); });
}

Value title_method(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "title", arguments, {});
  return transformed(run, text(owner), titled);
}

Value capitalize_method(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "capitalize", arguments, {});
  return transformed(run, text(owner), capitalized);
}

template <bool at_start>
Value touches(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, at_start ? "startswith" : "endswith", arguments, {"affix", "start", "end"}, 1);
  std::string_view whole = text(owner);
  if (given.has(1) || given.has(2)) {
    const Value end = given.has(2) ? given.at(2) : Value(None{});
    whole = std::get<std::string_view>(slice(run, owner, given.has(1) ? given.at(1) : Value(None{}), end, None{}));
  }
  const auto has = [&](std::string_view affix) {
    run.read(affix.size());
    return at_start ? whole.starts_with(affix) : whole.ends_with(affix);
  };
  const List* affixes = as_list(given.at(0));
  if (affixes == nullptr || affixes->kind != List::Kind::kTuple) return has(given.text(0));
  return std::any_of(affixes->items.begin(), affixes->items.end(), [&](const Value& affix) {
    if (as_text(affix) == nullptr) run.fail("startswith and endswith take texts");
    return has(*as_text(affix));
  });
}

template <bool at_start>
Value without(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, at_start ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  std::string_view whole = text(owner);
  const std::string_view affix = given.text(0);
  run.read(affix.size());
  if (at_start && whole.starts_with(affix)) whole.remove_prefix(affix.size());
  if (!at_start && whole.ends_with(affix)) whole.remove_suffix(affix.size());
  return whole;
}

Value replace_method(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "replace", arguments, {"old", "new", "count"}, 2);
  return replace(run, text(owner), given.text(0), given.text(1), given.integer(2, -1));
}

Value join(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "join", arguments, {"items"}, 1);
  Writer writer(run);
  bool first = true;
  for (const Value& item : iterate(run, given.at(0))) {
    if (as_text(item) == nullptr) run.fail(fmt::format("join: there is a {} among the texts", type_of(item)));
    if (!first) writer.add(text(owner));
    first = false;
    writer.add(text(item));
  }
  return writer.done();
}

template <bool from_end, bool must>
Value find_method_of_text(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, must ? "index" : "find", arguments, {"sub"}, 1);
  run.walk(text(owner).size());
  size_t at = find(text(owner), given.text(0));
  while (from_end && at != std::string::npos) {
    const size_t next = find(text(owner), given.text(0), at + 1);
    if (next == std::string::npos) break;
    run.walk(given.text(0).size());
    at = next;
  }
  if (at != std::string::npos) return static_cast<int64_t>(count_characters(text(owner).substr(0, at)));
  if (must) run.fail("index: the text is not there");
  return int64_t{-1};
}

Value count_of(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "count", arguments, {"sub"}, 1);
  run.walk(text(owner).size());
  if (given.text(0).empty()) return static_cast<int64_t>(count_characters(text(owner))) + 1;
  return static_cast<int64_t>(pieces_of(run, text(owner), given.text(0)).size()) - 1;
}

/// Whether every character is as `is` says, and there is one.
template <bool (*is)(char32_t)>
Value all_are(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "a method that asks for the kind of all characters", arguments, {});
  run.walk(text(owner).size());
  for (size_t at = 0; at < text(owner).size(); at += character_length(text(owner), at)) {
    if (!is(character_at(text(owner), at))) return false;
  }
  return !text(owner).empty();
}

bool is_space(char32_t character) {
  std::string text;
  append_utf8(text, character);
  return space_length(text, 0) > 0;
}
bool is_letter_or_digit(char32_t character) { return is_letter(character) || is_decimal(character); }

/// Whether there are letters, and changing all to `wanted` changes nothing.
template <Case wanted>
Value is_in_case(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "isupper or islower", arguments, {});
  run.walk(text(owner).size());
  run.charge(text(owner).size());
  bool any = false;
  for (size_t at = 0; at < text(owner).size(); at += character_length(text(owner), at)) {
    any = any || has_case(character_at(text(owner), at));
  }
  return any && cased(text(owner), wanted) == text(owner);
}

Value format_method(Run& run, const Value& owner, const Arguments& arguments) {
  return brace_format(run, text(owner), arguments);
}

struct NamedMethod {
  std::string_view name;
  MethodBody body;
};

constexpr NamedMethod kMethods[] = {{"strip", strip_method<true, true>},
                                    {"lstrip", strip_method<true, false>},
                                    {"rstrip", strip_method<false, true>},
                                    {"upper", case_method<Case::kUpper>},
                                    {"lower", case_method<Case::kLower>},
                                    {"title", title_method},
                                    {"capitalize", capitalize_method},
                                    {"startswith", touches<true>},
                                    {"endswith", touches<false>},
                                    {"removeprefix", without<true>},
                                    {"removesuffix", without<false>},
                                    {"replace", replace_method},
                                    {"join", join},
                                    {"find", find_method_of_text<false, false>},
                                    {"rfind", find_method_of_text<true, false>},
                                    {"index", find_method_of_text<false, true>},
                                    {"rindex", find_method_of_text<true, true>},
                                    {"count", count_of},
                                    {"isdigit", all_are<is_decimal>},
                                    {"isdecimal", all_are<is_decimal>},
                                    {"isnumeric", all_are<is_decimal>},
                                    {"isalpha", all_are<is_letter>},
                                    {"isalnum", all_are<is_letter_or_digit>},
                                    {"isspace", all_are<is_space>},
                                    {"isupper", is_in_case<Case::kUpper>},
                                    {"islower", is_in_case<Case::kLower>},
                                    {"format", format_method}};

}  // namespace

MethodBody find_text_method(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const auto& method) { return method.name == name; });
  return found == std::end(kMethods) ? find_splitting_method(name) : found->body;
}

Value replace(Run& run, std::string_view text, std::string_view old, std::string_view with, int64_t most) {
  run.walk(text.size());
  if (most < 0) most = std::numeric_limits<int64_t>::max();
  Writer writer(run);
  for (; most > 0; --most) {
    size_t at = find(text, old);
    size_t skipped = old.size();
    if (at == std::string::npos) break;
    writer.add(text.substr(0, at));
    writer.add(with);
    if (old.empty()) {  // before every character, and at the end
      if (text.empty()) return writer.done();
      at = 0;
      skipped = character_length(text, 0);
      writer.add(text.substr(0, skipped));
    }
    text.remove_prefix(at + skipped);
  }
  writer.add(text);
  return writer.done();
}

}  // namespace sluice::jinja
