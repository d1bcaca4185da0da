// Under what a speed was measured, and who reads it meanwhile.
#include "agents/evaluation/timing_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/support/eventually.h"

namespace sluice::test {
namespace {

DeviceClocks clocks(int sm, std::vector<std::string> held_by = {}) {
  DeviceClocks now;
  now.sm_mhz = sm;
  now.sm_limit_mhz = 1980;
  now.memory_mhz = 2619;
  now.held_by = std::move(held_by);
  return now;
}

TEST(TimingConditions, ClocksAreAddedUp) {
  std::vector<DeviceClocks> samples = {clocks(1980), clocks(1500, {"power_cap"}), clocks(1620, {"hw_slowdown", "power_cap"})};
  samples[1].other_processes = 2;
  samples[2].other_processes = 1;
  const auto summary = summary_of(samples);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->samples, 3);
  EXPECT_DOUBLE_EQ(summary->sm_mhz, 1700);
  EXPECT_EQ(summary->least_sm_mhz, 1500);
  EXPECT_EQ(summary->sm_limit_mhz, 1980);
  EXPECT_EQ(summary->memory_mhz, 2619);
  EXPECT_EQ(summary->held_by, (std::vector<std::string>{"hw_slowdown", "power_cap"}));
  EXPECT_EQ(summary->other_processes, 2);
}

TEST(TimingConditions, ClocksOfAnIdleDeviceSayLittle) {
  DeviceClocks idle = clocks(345);
  idle.is_idle = true;
  EXPECT_EQ(summary_of(std::vector{idle, clocks(1980), idle}).value().least_sm_mhz, 1980);
  EXPECT_EQ(summary_of(std::vector{idle}).value().sm_mhz, 345) << "better than nothing";
  EXPECT_EQ(summary_of(std::vector{idle}).value().other_processes, std::nullopt);
  EXPECT_FALSE(summary_of({}));
}

/// Of a second on two cores that others keep so busy.
TimingConditions conditions(double others) {
  TimingConditions result;
  result.wanted_cores = 2;
  result.waited = 0.5;
  result.load = {.seconds = 1, .own = 0, .cores = 2, .on_cores = {others, 2}, .group = {}};
  return result;
}

TEST(TimingConditions, AreOfAllThatWasTimed) {
  TimingConditions all;
  EXPECT_EQ(all.had_quiet(), std::nullopt);
  all.add(conditions(0.2));
  EXPECT_EQ(all.had_quiet(), true);
  all.add(conditions(1));
  EXPECT_EQ(all.had_quiet(), false);
  EXPECT_DOUBLE_EQ(all.others().value().busy, 0.6);
  EXPECT_DOUBLE_EQ(all.waited, 1);
  TimingConditions blind;
  blind.clocks.push_back(clocks(1980));
  all.add(blind);
  EXPECT_DOUBLE_EQ(all.others().value().busy, 0.6) << "of what is known";
  EXPECT_EQ(all.clocks.size(), 1U);
}

class CountingReader final : public ClockReader {
 public:
  explicit CountingReader(bool sees) : sees_(sees) {}
  std::optional<DeviceClocks> read() override {
    ++reads;
    return sees_ ? std::optional(clocks(1000 + reads)) : std::nullopt;
  }

  std::atomic<int> reads = 0;

 private:
  bool sees_;
};

TEST(ClockSampler, ReadsUntilItIsTaken) {
  CountingReader reader(true);
  ClockSampler sampler(reader, std::chrono::milliseconds(1));
  EXPECT_TRUE(testing::eventually([&] { return reader.reads >= 3; }));
  const std::vector<DeviceClocks> samples = sampler.take();
  EXPECT_EQ(samples.size(), static_cast<size_t>(reader.reads));
  EXPECT_EQ(samples.front().sm_mhz, 1001);
  EXPECT_TRUE(sampler.take().empty());
}

TEST(ClockSampler, DoesNotWaitForItsNextRead) {
  CountingReader reader(true);
  ClockSampler sampler(reader, std::chrono::hours(1));
  EXPECT_EQ(sampler.take().size(), 1U);
}

TEST(ClockSampler, GivesUpWhereNothingIsRead) {
  CountingReader reader(false);
  ClockSampler sampler(reader, std::chrono::milliseconds(1));
  EXPECT_TRUE(sampler.take().empty());
  EXPECT_EQ(reader.reads, 1);
}

TEST(TimingWatch, KnowsWhatTheJudgeWants) {
  const auto device = create_cpu_device({.threads = 2});
  TimingWatch watch(*device, 0);
  watch.begin();
  const TimingConditions found = watch.end();
  EXPECT_EQ(found.wanted_cores, 2);
  EXPECT_EQ(found.waited, 0);
  EXPECT_TRUE(found.clocks.empty()) << "a processor has none that are known";
}

}  // namespace
}  // namespace sluice::test
