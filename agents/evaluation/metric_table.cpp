#include "agents/evaluation/metric_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace sluice::metrics {
namespace {

std::optional<MetricForm> form_of(std::string_view name) {
  const MetricInfo* metric = find(name);
  return metric == nullptr ? std::nullopt : std::optional(metric->form);
}

}  // namespace

const MetricInfo* find(std::string_view name) {
  const auto is_it = [&](const MetricInfo& metric) { return name == metric.name; };
  const auto* const found = std::find_if(kAll.begin(), kAll.end(), is_it);
  if (found != kAll.end()) return found;
  const auto* const confirmed = std::find_if(kOfConfirmations.begin(), kOfConfirmations.end(), is_it);
  return confirmed == kOfConfirmations.end() ? nullptr : confirmed;
}

bool is_better_high(std::string_view name) {
  const MetricInfo* metric = find(name);
  return metric == nullptr || metric->better != MetricSide::kLower;
}

std::string names() {
  std::vector<std::string_view> all;
  for (const MetricInfo& metric : kAll) all.emplace_back(metric.name);
  return fmt::format("{}", fmt::join(all, ", "));
}

namespace {

/// "a, b or c".
std::string list_of(const std::vector<std::string>& texts, const char* last) {
  return fmt::format("{} {} {}", fmt::join(texts.begin(), texts.end() - 1, ", "), last, texts.back());
}

}  // namespace

std::string compared(bool explained) {
  std::vector<std::string> texts;
  for (const MetricInfo& metric : kAll) {
    if (metric.better == MetricSide::kNeither) continue;
    const bool is_explained = explained && *metric.meaning != '\0';
    texts.push_back(is_explained ? fmt::format("{} ({})", metric.name, metric.meaning) : metric.name);
  }
  return list_of(texts, "or");
}

std::string better_low() {
  std::vector<std::string> found;
  for (const MetricInfo& metric : kAll) {
    if (metric.better == MetricSide::kLower) found.emplace_back(metric.name);
  }
  return list_of(found, "and");
}

std::string number_text(std::string_view name, double value) {
  const auto form = form_of(name);
  if (!form) return fmt::format("{:.4g}", value);
  switch (*form) {
    case MetricForm::kShare:
      return fmt::format("{:.1f}%", 100 * value);
    case MetricForm::kRatio:
      return fmt::format("{:.2f}x", value);
    case MetricForm::kNats:
      return fmt::format("{:+.3f}", value);
  }
  return {};
}

std::string number_text(std::string_view name, double value, double low, double high) {
  const std::string text = number_text(name, value);
  const auto form = form_of(name);
  if (!form) return fmt::format("{} {:.4g}–{:.4g}", text, low, high);
  switch (*form) {
    case MetricForm::kShare:
      return fmt::format("{} {:.0f}–{:.0f}", text, 100 * low, 100 * high);
    case MetricForm::kRatio:
      return fmt::format("{} {:.2f}–{:.2f}", text, low, high);
    case MetricForm::kNats:
      return fmt::format("{} {:+.3f}–{:+.3f}", text, low, high);
  }
  return {};
}

}  // namespace sluice::metrics
