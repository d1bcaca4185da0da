// What /proc/stat and control groups say of processors, and what follows from it.
#include "agents/evaluation/processor_load.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace sluice::test {
namespace {

constexpr double kTicks = 100;  // a second
constexpr const char* kStat =
    "cpu  1000 0 500 9000 100 0 50 50 0 0\n"
    "cpu0 400 100 200 4000 100 0 50 50 30 0\n"
    "cpu1 600 0 300 5000 0 0 0 0 0 0\n"
    "cpu12 1 2 3 4\n"
    "intr 347689 0 0\n"
    "ctxt 529532\n";

TEST(ProcessorLoad, AddsUpTheCoresThatAreAskedFor) {
  const auto first = core_seconds(kStat, {0}, kTicks);
  ASSERT_TRUE(first);
  EXPECT_DOUBLE_EQ(first->busy, 8) << "waiting for a disk is idle, what a hypervisor took is not, guests are users";
  EXPECT_DOUBLE_EQ(first->all, 49);
  const auto both = core_seconds(kStat, {0, 1}, kTicks);
  ASSERT_TRUE(both);
  EXPECT_DOUBLE_EQ(both->busy, 17);
  EXPECT_DOUBLE_EQ(both->all, 108);
  EXPECT_DOUBLE_EQ(core_seconds(kStat, {12}, kTicks).value().busy, 0.06) << "old kernels count less";
}

TEST(ProcessorLoad, IsUnknownWhereACoreIsMissingOrTheTextIsNone) {
  EXPECT_FALSE(core_seconds(kStat, {0, 2}, kTicks));
  EXPECT_FALSE(core_seconds("", {0}, kTicks));
  EXPECT_FALSE(core_seconds(kStat, {}, kTicks));
  for (const char* text : {"cpu0", "cpu0 1 2 3", "cpu0 1 2 -3 4", "cpu0 1 2 3 4x", "cpu0 1 2 3 99999999999999999999999",
                           "cpu0x 1 2 3 4", "CPU0 1 2 3 4", "cpu0 1 2 3 4.5", "cpu 1 2 3 4", "cpu0 0 0 0 0 0 0 0 0"}) {
    EXPECT_FALSE(core_seconds(text, {0}, kTicks)) << text;
  }
}

TEST(ProcessorLoad, ReadsControlGroups) {
  EXPECT_DOUBLE_EQ(seconds_of_group("usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n").value(), 2.5);
  EXPECT_DOUBLE_EQ(seconds_of_group("nr_periods 0\nusage_usec 5").value(), 5e-6);
  for (const char* text : {"", "usage_usec", "usage_usec \n", "usage_usec x\n", "usage_usec 1 2\n", "user_usec 3\n"}) {
    EXPECT_FALSE(seconds_of_group(text)) << text;
  }
  EXPECT_DOUBLE_EQ(cores_of_group("150000 100000\n").value(), 1.5);
  for (const char* text : {"", "max 100000\n", "max\n", "100000\n", "0 100000\n", "100000 0\n", "1 2 3\n", "-1 100000\n"}) {
    EXPECT_FALSE(cores_of_group(text)) << text;
  }
}

// Whatever stands there, it is read or is not, and what is read makes sense.
TEST(ProcessorLoad, SurvivesDamagedTexts) {
  std::mt19937 random(7);
  const std::string whole = std::string(kStat) + "usage_usec 17\n150000 100000\n";
  constexpr std::string_view kCharacters = "cpu0123456789 \n-.xu_\0";
  for (int round = 0; round < 20000; ++round) {
    std::string text = whole.substr(random() % whole.size());
    for (size_t changes = random() % 8; changes > 0 && !text.empty(); --changes) {
      text[random() % text.size()] = kCharacters[random() % kCharacters.size()];
    }
    if (const auto found = core_seconds(text, {0, 1}, kTicks)) {
      EXPECT_GE(found->busy, 0);
      EXPECT_GE(found->all, found->busy);
    }
    if (const auto seconds = seconds_of_group(text)) {
      EXPECT_GE(*seconds, 0);
    }
    if (const auto cores = cores_of_group(text)) {
      EXPECT_GT(*cores, 0);
    }
  }
}

/// A second on two cores, of which anybody and this process had so many.
ProcessorTime second(double busy, double own) {
  ProcessorTime time;
  time.seconds = 1;
  time.own = own;
  time.cores = 2;
  time.on_cores = {busy, 2};
  return time;
}

TEST(ProcessorLoad, IsOthersWithoutThisProcess) {
  const auto others = load_of_others(second(1.75, 1.25));
  ASSERT_TRUE(others);
  EXPECT_DOUBLE_EQ(others->busy, 0.5);
  EXPECT_EQ(others->cores, 2);
  EXPECT_EQ(load_of_others(second(1, 1.01)).value().busy, 0) << "counters of two kinds differ a little";
}

TEST(ProcessorLoad, IsUnknownWhereNobodyCounts) {
  ProcessorTime stopped = second(0, 0.5);
  stopped.on_cores.all = 0;
  EXPECT_FALSE(load_of_others(stopped));
  EXPECT_FALSE(load_of_others(ProcessorTime()));
}

TEST(ProcessorLoad, IsOfTheGroupWhereThatLeavesLess) {
  ProcessorTime time = second(1.5, 0.5);
  time.group = {1.5, 1.25};
  const auto in_group = load_of_others(time);
  ASSERT_TRUE(in_group);
  EXPECT_DOUBLE_EQ(in_group->busy, 0.75);
  EXPECT_DOUBLE_EQ(in_group->cores, 1.5);
  time.group = {1.5, 0.5};  // nobody else in it, but the machine is busy
  EXPECT_DOUBLE_EQ(load_of_others(time).value().busy, 1);
  EXPECT_EQ(load_of_others(time).value().cores, 2);
}

TEST(ProcessorLoad, AddsUpPeriods) {
  const ProcessorTime before = second(0.5, 0.25);
  const ProcessorTime after = together(before, second(1.5, 0.5));
  EXPECT_DOUBLE_EQ(load_of_others(between(before, after)).value().busy, 1);
  EXPECT_DOUBLE_EQ(load_of_others(after).value().busy, 0.625) << "of both seconds";
}

TEST(ProcessorLoad, LeavesCoresIdleThatTheJudgeWants) {
  EXPECT_TRUE(leave_idle({0.2, 2}, 2)) << "something always runs";
  EXPECT_FALSE(leave_idle({0.3, 2}, 2));
  EXPECT_TRUE(leave_idle({1, 2}, 1));
  EXPECT_FALSE(leave_idle({1.5, 2}, 1));
  EXPECT_TRUE(leave_idle({0, 2}, 8)) << "more threads than cores";
  EXPECT_TRUE(leave_idle({1.2, 64}, 64));
  EXPECT_FALSE(leave_idle({1.5, 64}, 64));
}

}  // namespace
}  // namespace sluice::test
