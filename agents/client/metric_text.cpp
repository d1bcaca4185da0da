#include "agents/client/metric_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "scripting/base/printable_text.h"

namespace sluice {
namespace {

using nlohmann::json;

bool is_share(std::string_view name) { return name.ends_with("accuracy") || name == "pages_read" || name == "mass"; }

}  // namespace

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

std::string metric_number(const std::string& name, double value) {
  if (is_share(name)) return fmt::format("{:.1f}%", 100 * value);
  return name == "speedup" ? fmt::format("{:.2f}x", value) : fmt::format("{:.4g}", value);
}

std::string metric_text(const std::string& name, const json& metric) {
  std::array<double, 3> numbers{};
  const std::array<const char*, 3> members = {"value", "low", "high"};
  for (size_t i = 0; i < members.size(); ++i) {
    const json& number = member_of(metric, members[i]);
    if (!number.is_number()) return i == 0 ? "-" : metric_number(name, numbers[0]);
    numbers[i] = number.get<double>();
  }
  const auto [value, low, high] = numbers;
  if (is_share(name)) return fmt::format("{:.1f}% {:.0f}–{:.0f}", 100 * value, 100 * low, 100 * high);
  if (name == "speedup") return fmt::format("{:.2f}x {:.2f}–{:.2f}", value, low, high);
  return fmt::format("{:.4g} {:.4g}–{:.4g}", value, low, high);
}

std::string measured_text(const json& summary) {
  std::string text;
  for (const char* metric : {"accuracy", "speedup"}) {
    const json& measured = member_of(member_of(member_of(summary, "metrics"), metric), "value");
    if (measured.is_number()) text += fmt::format(", {} {}", metric, metric_number(metric, measured.get<double>()));
  }
  return text;
}

}  // namespace sluice
