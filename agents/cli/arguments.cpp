#include "agents/cli/arguments.h"

#include <cmath>

#include "scripting/base/unicode.h"

namespace sluice::cli {

CLI::Option* add_model(CLI::App& command, std::string& model) {
  const auto refuse = [](const std::string& text) -> std::string {
    if (text.empty()) return "an empty name; without --model it is the mini model";
    return valid_utf8(text) == text ? "" : fmt::format("\"{}\" is no UTF-8, and documents tell a model's name", text);
  };
  return command
      .add_option(
          "--model", model,
          "Hugging Face directory, GGUF file, or smollm2 once ./dev model has fetched it (default: the mini, a smoke test)")
      ->check(CLI::Validator(refuse, ""));
}

CLI::Validator finite_number(double least, double most) {
  const auto check = [=](std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value >= least && value <= most && std::isfinite(value)) return {};
    return fmt::format("\"{}\" is no number from {} to {}", text, least, most);
  };
  return {check, fmt::format("{} to {}", least, most)};
}

CLI::Validator positive_share() {
  const auto check = [](std::string& text) -> std::string {
    float value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value > 0 && value <= 1) return {};
    return fmt::format("\"{}\" is no number above 0 and at most 1", text);
  };
  return {check, "above 0, at most 1"};
}

std::vector<std::string> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items(1);
  int open = 0;  // brackets: what a flow's parameters are set to
  for (const char c : text) {
    open += c == '[' ? 1 : c == ']' && open > 0 ? -1 : 0;
    if (c == ',' && open == 0) {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  for (const std::string& item : items) {
    if (item.empty()) throw CLI::ValidationError(option, fmt::format("\"{}\" has an empty item", text));
  }
  return items;
}

CLI::Option* add_list(CLI::App& command, const std::string& option, std::vector<std::string>& list, const std::string& about) {
  const auto take = [option, &list](const std::vector<std::string>& texts) {
    list.clear();
    for (const std::string& text : texts) {
      for (std::string& item : split_list(option, text)) list.push_back(std::move(item));
    }
  };
  return command.add_option_function<std::vector<std::string>>(option, take, about)
      ->allow_extra_args(false)
      ->option_text(kListText);
}

}  // namespace sluice::cli
