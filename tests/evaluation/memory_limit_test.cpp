#include "agents/evaluation/memory_limit.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <vector>

#include "tests/support/sanitized.h"

namespace sluice {
namespace {

/// Runs `body` in a process of its own, whose limit is no other test's; its result is the exit status.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool can_have(size_t mib) {
  try {
    const auto memory = std::make_unique_for_overwrite<char[]>(mib << 20);
    return memory != nullptr;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST(MemoryLimit, GivesWhatItSaysAndNoMore) {
  if (test::kIsSanitized) GTEST_SKIP() << "the sanitizer ends a process that gets no memory";
  EXPECT_EQ(in_child([] {
              MemoryLimit().allow(size_t{64} << 20);
              return can_have(32) && !can_have(128) ? 0 : 1;
            }),
            0);
}

TEST(MemoryLimit, CanBeRaisedAgain) {
  EXPECT_EQ(in_child([] {
              MemoryLimit limit;
              limit.allow(size_t{16} << 20);
              limit.allow(size_t{256} << 20);
              return can_have(128) ? 0 : 1;
            }),
            0);
}

rlim_t limit_of_data() {
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  return limit.rlim_cur;
}

TEST(MemoryLimit, IsNotRaisedByWhatJobsLeaveBehind) {
  if (test::kIsSanitized) GTEST_SKIP() << "the sanitizer ends a process that gets no memory";
  EXPECT_EQ(in_child([] {
              constexpr size_t kAllowed = size_t{128} << 20;
              MemoryLimit limit;
              limit.allow(kAllowed);
              const rlim_t first = limit_of_data();
              std::vector<std::unique_ptr<char[]>> left;
              for (int job = 0; job < 4; ++job) {
                left.push_back(std::make_unique_for_overwrite<char[]>(size_t{16} << 20));
                limit.allow(kAllowed);
                if (limit_of_data() > first + kAllowed / 4) return 1;
              }
              return can_have(128) ? 2 : 0;
            }),
            0);
}

TEST(MemoryLimit, GivesBackWhatWasFreed) {
#ifdef __GLIBC__
  if (test::kIsSanitized) GTEST_SKIP() << "the sanitizer keeps what was freed";
  EXPECT_EQ(in_child([] {
              ::mallopt(M_MMAP_THRESHOLD, 1 << 30);  // all of it in the heap,
              ::mallopt(M_TRIM_THRESHOLD, 1 << 30);  // which keeps it
              MemoryLimit().allow(size_t{256} << 20);
              const rlim_t before = limit_of_data();
              if (!can_have(64)) return 1;
              MemoryLimit().allow(size_t{256} << 20);
              return limit_of_data() > before + (1 << 20) ? 2 : 0;
            }),
            0);
#endif
}

TEST(MemoryLimit, IsNamedWhereMemoryRanOut) {
  EXPECT_EQ(memory_ran_out(), "memory ran out");
  EXPECT_EQ(in_child([] {
              MemoryLimit().allow(size_t{64} << 20);
              return memory_ran_out().find(" MiB allows") != std::string::npos ? 0 : 1;
            }),
            0);
}

TEST(MemoryLimit, LeavesRoomForThePromptsOfTheSuite) {
  const ModelConfig mini = load_config(SLUICE_SOURCE_DIR "/host/models/mini");
  EXPECT_EQ(memory_of_batches(load_suite("verify"), mini), 0U);
  const size_t quick = memory_of_batches(load_suite("quick"), mini);
  EXPECT_GT(quick, size_t{256} << 20);
  EXPECT_LT(quick, size_t{4} << 30);
}

}  // namespace
}  // namespace sluice
