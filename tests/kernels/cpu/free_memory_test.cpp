// What control groups leave a process, from folders made as Linux has them.
#include "kernels/cpu/runtime/free_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class FreeMemory : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const fs::path path = fs::path(root_.path()) / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<size_t> left() const { return cpu::memory_left_by_groups(root_.path()); }

  testing::TemporaryDirectory root_;
};

TEST_F(FreeMemory, IsNotLimitedWhereNoGroupIs) {
  EXPECT_EQ(left(), std::nullopt);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(left(), std::nullopt);
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "4096\n");
  EXPECT_EQ(left(), std::nullopt);
  write("proc/self/cgroup", "nonsense\n7:memory\n");
  EXPECT_EQ(left(), std::nullopt);
}

TEST_F(FreeMemory, IsTheLeastThatAGroupAroundLeaves) {
  write("proc/self/cgroup", "0::/service/worker\n");
  write("sys/fs/cgroup/service/memory.max", "1000000\n");
  write("sys/fs/cgroup/service/memory.current", "400000\n");
  write("sys/fs/cgroup/service/worker/memory.max", "max\n");
  write("sys/fs/cgroup/service/worker/memory.current", "300000\n");
  EXPECT_EQ(left(), 600'000);
  write("sys/fs/cgroup/service/worker/memory.max", "500000\n");
  EXPECT_EQ(left(), 200'000);
  write("sys/fs/cgroup/service/worker/memory.stat", "anon 250000\nfile 50000\ninactive_file 40000\nactive_file 10000\n");
  EXPECT_EQ(left(), 240'000);  // the kernel drops what is cached before it refuses
}

TEST_F(FreeMemory, IsNothingWhereMoreIsTakenThanAllowed) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(left(), 0);
}

TEST_F(FreeMemory, KnowsGroupsOfVersionOne) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
  // A container sees its own group where the machine has all.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "800000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
  EXPECT_EQ(left(), 600'000);
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(left(), 600'000);
}

TEST_F(FreeMemory, KnowsBothVersionsSideBySide) {
  write("proc/self/cgroup", "3:memory:/a\n0::/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "900\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100\n");
  write("sys/fs/cgroup/unified/a/memory.max", "600\n");
  write("sys/fs/cgroup/unified/a/memory.current", "200\n");
  EXPECT_EQ(left(), 400);
}

TEST_F(FreeMemory, IsNoMoreThanThisMachineHasAndItsGroupsLeave) {
  constexpr size_t kMeanwhile = size_t{256} << 20;  // that others take or give back
  const size_t free = cpu::free_memory();
  EXPECT_GT(free, 1 << 20);
  EXPECT_LE(free, static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  if (const auto left = cpu::memory_left_by_groups()) {
    EXPECT_LE(free, *left + kMeanwhile);
  }
}

}  // namespace
}  // namespace sluice
