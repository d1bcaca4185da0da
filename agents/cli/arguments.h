#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

/// The whole of `text` as a number in decimal digits, from `least` to `most`. A message for people if it is none, or empty.
/// CLI11's own conversion takes 010 for eight, wraps -1 around and cuts what is too large.
template <class Integer>
std::string parse_decimal(std::string_view text, Integer least, Integer most, Integer& value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  // CLI11 converts again what a validator lets through, and takes leading zeros for octal digits.
  const bool octal = text.size() > 1 && text[text.front() == '-' ? 1 : 0] == '0';
  if (parsed.ec == std::errc() && parsed.ptr == end && !octal && value >= least && value <= most) return {};
  return fmt::format("\"{}\" is no whole number from {} to {}", text, least, most);
}

/// Checks an option's value: a whole number in decimal digits, from `least` to `most`.
template <class Integer>
CLI::Validator decimal_number(Integer least, Integer most) {
  return {[=](std::string& text) {
            Integer value{};
            return parse_decimal(text, least, most, value);
          },
          fmt::format("{} to {}", least, most)};
}

/// Checks an option's value: a number from `least` to `most`, neither NaN nor infinite.
CLI::Validator finite_number(double least, double most);

/// Checks an option's value: a number above 0, at most 1.
CLI::Validator positive_share();

/// --model, which is the mini model if it is not given. An empty one is refused: a script's variable may not be set.
CLI::Option* add_model(CLI::App& command, std::string& model);

/// What help shows as the value of a list.
constexpr const char* kListText = "A,B,...";

/// Items of "a,b[x=1,y=2],c": commas in brackets are an item's own. Throws CLI::ValidationError naming `option` if there is none,
/// or an empty one.
std::vector<std::string> split_list(const std::string& option, const std::string& text);

/// An option that takes a list, "a,b,c", and may be repeated.
CLI::Option* add_list(CLI::App& command, const std::string& option, std::vector<std::string>& list, const std::string& about);

/// The same for whole numbers from `least` to `most`.
template <class Integer>
CLI::Option* add_number_list(CLI::App& command, const std::string& option, std::vector<Integer>& list, Integer least,
                             Integer most, const std::string& about) {
  const auto take = [=, &list](const std::vector<std::string>& texts) {
    list.clear();
    for (const std::string& text : texts) {
      for (const std::string& item : split_list(option, text)) {
        list.emplace_back();
        const std::string refused = parse_decimal(item, least, most, list.back());
        if (!refused.empty()) throw CLI::ValidationError(option, refused);
      }
    }
  };
  return command.add_option_function<std::vector<std::string>>(option, take, about)
      ->allow_extra_args(false)
      ->option_text(kListText);
}

}  // namespace sluice::cli
