#include "agents/client/metric_text.h"

#include <fmt/format.h>

#include <array>

#include "agents/evaluation/metric_table.h"
#include "scripting/base/printable_text.h"

namespace sluice {

using nlohmann::json;

const json& member_of(const json& document, const char* name) {
  static const json none;
  const auto found = document.is_object() ? document.find(name) : document.end();
  return document.is_object() && found != document.end() ? *found : none;
}

std::string text_of(const json& document, const char* name) {
  const json& value = member_of(document, name);
  if (value.is_null()) return "-";
  return printable(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string metric_text(const std::string& name, const json& metric) {
  std::array<double, 3> numbers{};
  const std::array<const char*, 3> members = {"value", "low", "high"};
  for (size_t i = 0; i < members.size(); ++i) {
    const json& number = member_of(metric, members[i]);
    if (!number.is_number()) return i == 0 ? "-" : metrics::number_text(name, numbers[0]);
    numbers[i] = number.get<double>();
  }
  const auto [value, low, high] = numbers;
  return metrics::number_text(name, value, low, high);
}

std::string measured_text(const json& summary) {
  std::string text;
  for (const char* metric : {metrics::kScore.name, metrics::kAccuracy.name, metrics::kSpeedup.name}) {
    const json& measured = member_of(member_of(member_of(summary, "metrics"), metric), "value");
    if (measured.is_number()) text += fmt::format(", {} {}", metric, metrics::number_text(metric, measured.get<double>()));
  }
  return text;
}

}  // namespace sluice
