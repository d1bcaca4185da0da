#include "kernels/profile/kernel_profile.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const KernelProfile::Row& row_of(const KernelProfile& profile, const std::string& name) {
  for (const KernelProfile::Row& row : profile.rows) {
    if (row.name == name) return row;
  }
  throw std::out_of_range(name);
}

TEST(KernelProfile, AddsUpToTheRecording) {
  const DeviceRecording recording{.start = 1000,
                                  .end = 21000,
                                  .activities = {{"b", 6000, 8000}, {"a", 2000, 5000}, {"a", 12000, 13000}, {"b", 13000, 16000}}};
  const KernelProfile profile = summarize(recording, 2);
  EXPECT_DOUBLE_EQ(profile.step_us, 10);
  EXPECT_DOUBLE_EQ(profile.busy_us, 4.5);
  EXPECT_DOUBLE_EQ(profile.idle_us, 5.5);
  EXPECT_DOUBLE_EQ(profile.overlap_us, 0);
  ASSERT_EQ(profile.rows.size(), 2U);
  EXPECT_EQ(profile.rows[0].name, "b") << "the longest first";
  EXPECT_DOUBLE_EQ(profile.rows[0].calls, 1);
  EXPECT_DOUBLE_EQ(profile.rows[0].mean_us, 2.5);
  EXPECT_DOUBLE_EQ(profile.rows[0].exclusive_us, 2.5);
  EXPECT_DOUBLE_EQ(profile.rows[0].idle_us, 0.5);
  EXPECT_DOUBLE_EQ(profile.rows[1].exclusive_us, 2);
  EXPECT_DOUBLE_EQ(profile.rows[1].idle_us, 2.5);
}

TEST(KernelProfile, AKernelThatBeginsEarlyIsAloneFromTheEndOfTheOneBefore) {
  const KernelProfile profile = summarize({0, 10000, {{"first", 0, 6000}, {"second", 1000, 7000}, {"third", 2000, 10000}}}, 1);
  EXPECT_DOUBLE_EQ(row_of(profile, "first").exclusive_us, 6);
  EXPECT_DOUBLE_EQ(row_of(profile, "second").exclusive_us, 1);
  EXPECT_DOUBLE_EQ(row_of(profile, "second").mean_us, 6);
  EXPECT_DOUBLE_EQ(row_of(profile, "third").exclusive_us, 3);
  EXPECT_DOUBLE_EQ(profile.overlap_us, 6);
  EXPECT_DOUBLE_EQ(profile.idle_us, 0);
}

TEST(KernelProfile, AKernelInsideAnotherTakesItsTime) {
  const KernelProfile profile = summarize({0, 10000, {{"outer", 0, 10000}, {"inner", 3000, 5000}}}, 1);
  EXPECT_DOUBLE_EQ(row_of(profile, "outer").exclusive_us, 8);
  EXPECT_DOUBLE_EQ(row_of(profile, "inner").exclusive_us, 2);
  EXPECT_DOUBLE_EQ(profile.busy_us, 10);
}

TEST(KernelProfile, NothingRecordedIsIdle) {
  const KernelProfile profile = summarize({0, 4000, {}}, 4);
  EXPECT_DOUBLE_EQ(profile.idle_us, 1);
  EXPECT_TRUE(profile.rows.empty());
}

TEST(KernelNames, AreShort) {
  const auto name = [](const std::string& symbol) { return short_kernel_name(symbol, "quest"); };
  EXPECT_EQ(name("_ZN6sluice4cuda12_GLOBAL__N_113decode_kernelILi128ELi16ELb0EEEvNS1_9ArgumentsE"),
            "decode_kernel<128, 16, false>");
  EXPECT_EQ(name("_ZN6sluice4cuda11sample_rowsEPf"), "sample_rows");
  EXPECT_EQ(name("index_0"), "quest: index_0");
  EXPECT_EQ(short_kernel_name("index_0", ""), "index_0");
  EXPECT_EQ(name("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"), "cuBLASLt tst_64x8_64x16_4x1_v_bz_TNT");
  EXPECT_EQ(name("_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiEEvPf"), "cuBLASLt splitKreduce_kernel");
  EXPECT_EQ(name("_Znonsense"), "quest: _Znonsense");
  EXPECT_LE(name(std::string(1000, 'x')).size(), 52U);
}

}  // namespace
}  // namespace sluice
