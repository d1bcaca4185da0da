#include "agents/evaluation/metric_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/support/golden.h"

namespace sluice {
namespace {

/// The table as the page has it.
std::string page_source() {
  std::string text =
      "// What is measured of a flow: a copy of agents/evaluation/metric_table.h, which that one's test writes "
      "(SLUICE_ACCEPT=1).\n\n"
      "export interface Metric {\n"
      "  name: string;\n"
      "  title: string;\n"
      "  form: 'share' | 'ratio' | 'nats';\n"
      "  interval: boolean;\n"
      "  better?: 'higher' | 'lower';\n"
      "}\n\n"
      "/** In the order in which they are read. */\n"
      "export const kMetrics: readonly Metric[] = [\n";
  const auto form = [](const MetricInfo& metric) {
    return metric.form == MetricForm::kShare ? "share" : metric.form == MetricForm::kRatio ? "ratio" : "nats";
  };
  const auto add = [&](const MetricInfo& metric) {
    const std::string better = metric.better == MetricSide::kNeither  ? ""
                               : metric.better == MetricSide::kHigher ? ", better: 'higher'"
                                                                      : ", better: 'lower'";
    text += fmt::format("  {{ name: '{}', title: '{}', form: '{}', interval: {}{} }},\n", metric.name, metric.title, form(metric),
                        metric.has_interval(), better);
  };
  std::for_each(metrics::kAll.begin(), metrics::kAll.end(), add);
  text += "];\n\n/** What confirmations have beside those. */\nexport const kConfirmedMetrics: readonly Metric[] = [\n";
  std::for_each(metrics::kOfConfirmations.begin(), metrics::kOfConfirmations.end(), add);
  return text + "];\n";
}

TEST(MetricTable, IsThePagesToo) { testing::expect_golden("../../agents/web/src/metrics.ts", page_source()); }

TEST(MetricTable, IsFoundByName) {
  std::set<std::string> names;
  for (const MetricInfo& metric : metrics::kAll) {
    ASSERT_NE(metrics::find(metric.name), nullptr) << metric.name;
    EXPECT_STREQ(metrics::find(metric.name)->title, metric.title);
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
  }
  EXPECT_STREQ(metrics::find("holdout_accuracy")->title, metrics::kHeldOut.title);
  EXPECT_EQ(metrics::find("luck"), nullptr);
  EXPECT_EQ(metrics::find(""), nullptr);
}

TEST(MetricTable, SaysWhatIsBetter) {
  EXPECT_TRUE(metrics::is_better_high("accuracy"));
  EXPECT_TRUE(metrics::is_better_high("dense_accuracy")) << "no side is better, but the most come first";
  EXPECT_TRUE(metrics::is_better_high("luck"));
  EXPECT_FALSE(metrics::is_better_high("pages_read"));
  EXPECT_FALSE(metrics::is_better_high("loss"));
  EXPECT_EQ(metrics::better_low(), "pages_read, loss, trace_regret and trace_error");
}

TEST(MetricTable, IsToldInWords) {
  EXPECT_EQ(metrics::names(),
            "score, accuracy, dense_accuracy, speedup, pages_read, mass, loss, trace_mass, trace_regret, trace_error");
  EXPECT_EQ(metrics::compared(), "score, accuracy, speedup, pages_read, mass, loss, trace_mass, trace_regret or trace_error");
  EXPECT_EQ(metrics::compared(true),
            "score (accuracy of a real model; of the mini a fifth, the rest by the error on traces), accuracy, speedup (times "
            "dense decoding), pages_read, mass (share of attention covered), loss (nats a token of text "
            "above dense attention), trace_mass (share of a real model's attention covered), trace_regret (share that the best "
            "pages, as many, would have covered beyond that) or trace_error (distance from dense attention's output, over its "
            "length)");
}

TEST(MetricTable, NumbersHaveTheFormOfTheirMetric) {
  EXPECT_EQ(metrics::number_text("accuracy", 0.9604), "96.0%");
  EXPECT_EQ(metrics::number_text("accuracy", 0.9604, 0.926, 0.98), "96.0% 93–98");
  EXPECT_EQ(metrics::number_text("pages_read", 0.125), "12.5%");
  EXPECT_EQ(metrics::number_text("speedup", 1.915), "1.92x");
  EXPECT_EQ(metrics::number_text("speedup", 1.9, 1.8, 2), "1.90x 1.80–2.00");
  EXPECT_EQ(metrics::number_text("loss", 0.0391), "+0.039");
  EXPECT_EQ(metrics::number_text("loss", 0.0391, -0.001, 0.08), "+0.039 -0.001–+0.080");
  EXPECT_EQ(metrics::number_text("luck", 0.12345678), "0.1235");
  EXPECT_EQ(metrics::number_text("luck", 1234.5, 1, 2e7), "1234 1–2e+07");
}

}  // namespace
}  // namespace sluice
