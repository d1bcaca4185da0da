#include "agents/repl/value_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::repl {

namespace {

constexpr size_t kFirstValues = 8;

struct Statistics {
  double low = NAN;
  double high = NAN;
  double sum = 0;
  size_t finite = 0;
  size_t nan = 0;
  size_t infinite = 0;
  size_t absent = 0;
};

Statistics statistics_of(const ShownTensor& tensor) {
  Statistics result;
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const double value = tensor.values[i];
    if (!tensor.exists[i]) {
      ++result.absent;
    } else if (std::isnan(value)) {
      ++result.nan;
    } else if (std::isinf(value)) {
      ++result.infinite;
    } else {
      result.low = result.finite == 0 ? value : std::min(result.low, value);
      result.high = result.finite == 0 ? value : std::max(result.high, value);
      result.sum += value;
      ++result.finite;
    }
  }
  return result;
}

std::string first_values(const ShownTensor& tensor) {
  std::string text;
  const size_t shown = std::min(kFirstValues, tensor.values.size());
  for (size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "  " : " ") + (tensor.exists[i] ? number_text(tensor.values[i]) : std::string("-"));
  }
  return text + (shown < tensor.values.size() ? " ...\n" : "\n");
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  return fmt::format("{:.5g}", value == 0 ? 0 : value);
}

std::string summary(const ShownTensor& tensor) {
  std::string text = fmt::format("{} {}", tensor.type, to_string(tensor.shape));
  if (tensor.shape.empty()) return fmt::format("{}  {}\n", text, number_text(tensor.values.at(0)));
  const Statistics all = statistics_of(tensor);
  if (all.finite > 0) {
    text += fmt::format("  min {}  mean {}  max {}", number_text(all.low), number_text(all.sum / static_cast<double>(all.finite)),
                        number_text(all.high));
  }
  if (all.nan > 0) text += fmt::format("  {} NaN", all.nan);
  if (all.infinite > 0) text += fmt::format("  {} infinite", all.infinite);
  if (all.absent > 0) text += fmt::format("  {} of tokens still to come", all.absent);
  return text + "\n";
}

std::string describe(const ShownTensor& tensor, const Style& style) {
  std::string text = summary(tensor);
  if (tensor.shape.empty()) return text;
  text += first_values(tensor);
  if (!has_axis(tensor.shape, Axis::kPage)) return text;
  if (tensor.shape.size() == 1) return text + heat_map(tensor.values, style);
  if (tensor.shape.size() == 2) return text + heat_map(tensor.values, tensor.shape[1].extent, style);
  return text;
}

}  // namespace sluice::repl
