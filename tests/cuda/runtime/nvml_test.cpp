// What NVML says of a GPU, from a library that is played.
#include "kernels/cuda/runtime/nvml.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda/gpu.h"

namespace sluice {
namespace {

using Names = std::vector<std::string>;
using cuda::Nvml;

/// What the played library answers.
struct Played {
  unsigned sm = 1410;
  unsigned long long reasons = 0;
  std::vector<unsigned> processes;
  Nvml::Status of_clocks = 0;
  Nvml::Status of_processes = 0;
};
Played played;

Nvml library() {
  played = {};
  Nvml nvml;
  nvml.clock = [](Nvml::Gpu, int domain, unsigned* mhz) {
    *mhz = domain == 1 ? played.sm : domain == 2 ? 2619 : 0;
    return played.of_clocks;
  };
  nvml.most_clock = [](Nvml::Gpu, int domain, unsigned* mhz) {
    *mhz = domain == 1 ? 1980 : 0;
    return 0;
  };
  nvml.reasons = [](Nvml::Gpu, unsigned long long* bits) {
    *bits = played.reasons;
    return 0;
  };
  nvml.processes = [](Nvml::Gpu, unsigned* count, Nvml::Process* found) {
    if (played.of_processes != 0) return played.of_processes;
    if (*count < played.processes.size()) {
      *count = static_cast<unsigned>(played.processes.size());
      return 7;
    }
    *count = static_cast<unsigned>(played.processes.size());
    for (size_t i = 0; i < played.processes.size(); ++i) found[i].pid = played.processes[i];
    return 0;
  };
  return nvml;
}

constexpr unsigned kOwn = 42;

std::optional<int> others(std::vector<unsigned> processes) {
  const Nvml nvml = library();
  played.processes = std::move(processes);
  return cuda::clocks_of(nvml, nullptr, kOwn).value().other_processes;
}

TEST(CudaNvml, NamesWhatHoldsClocksDown) {
  EXPECT_EQ(cuda::reasons_of(0), Names{});
  EXPECT_EQ(cuda::reasons_of(0x1), Names{}) << "idle";
  EXPECT_EQ(cuda::reasons_of(0x5), Names{"power_cap"});
  EXPECT_EQ(cuda::reasons_of(0x1ff), (Names{"applications_clocks", "power_cap", "hw_slowdown", "sync_boost", "thermal_slowdown",
                                            "hw_thermal_slowdown", "hw_power_brake", "display_clocks"}));
  EXPECT_EQ(cuda::reasons_of(0x8000000000000008), (Names{"hw_slowdown", "reason_0x8000000000000000"}));
}

TEST(CudaNvml, TellsClocks) {
  const Nvml nvml = library();
  played.reasons = 0x4;
  const auto clocks = cuda::clocks_of(nvml, nullptr, kOwn);
  ASSERT_TRUE(clocks);
  EXPECT_EQ(clocks->sm_mhz, 1410);
  EXPECT_EQ(clocks->sm_limit_mhz, 1980);
  EXPECT_EQ(clocks->memory_mhz, 2619);
  EXPECT_EQ(clocks->held_by, Names{"power_cap"});
  EXPECT_FALSE(clocks->is_idle);
  EXPECT_EQ(clocks->other_processes, std::nullopt) << "not even this one is in the list";
  played.reasons = 0x1;
  EXPECT_TRUE(cuda::clocks_of(nvml, nullptr, kOwn)->is_idle);
  played.of_clocks = 3;  // not supported
  EXPECT_FALSE(cuda::clocks_of(nvml, nullptr, kOwn));
}

TEST(CudaNvml, CountsProcessesButThisOne) {
  EXPECT_EQ(others({kOwn}), 0);
  EXPECT_EQ(others({7, kOwn, 8}), 2);
  EXPECT_EQ(others({kOwn, kOwn}), 0) << "once for each part of a GPU";
  EXPECT_EQ(others({90001, 90002}), 1) << "numbers of another namespace";
  EXPECT_EQ(others(std::vector<unsigned>(100, 7)), 99) << "more than there is room for";
  const Nvml nvml = library();
  played.of_processes = 4;  // no permission
  EXPECT_EQ(cuda::clocks_of(nvml, nullptr, kOwn).value().other_processes, std::nullopt);
}

class CudaClocks : public testing::GpuTest {};

TEST_F(CudaClocks, AreReadWhereThereIsAGpu) {
  const auto reader = create_clock_reader("cuda");
  ASSERT_NE(reader, nullptr);
  const auto clocks = reader->read();
  ASSERT_TRUE(clocks);
  EXPECT_GT(clocks->sm_mhz, 0);
  EXPECT_LE(clocks->sm_mhz, clocks->sm_limit_mhz);
  EXPECT_GT(clocks->memory_mhz, 0);
  EXPECT_GE(clocks->other_processes.value_or(0), 0);
}

}  // namespace
}  // namespace sluice
