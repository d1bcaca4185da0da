#include "agents/evaluation/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <new>

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
  EXPECT_EQ(in_child([] {
              limit_memory(size_t{64} << 20);
              return can_have(32) && !can_have(128) ? 0 : 1;
            }),
            0);
}

TEST(MemoryLimit, CanBeRaisedAgain) {
  EXPECT_EQ(in_child([] {
              limit_memory(size_t{16} << 20);
              limit_memory(size_t{256} << 20);
              return can_have(128) ? 0 : 1;
            }),
            0);
}

TEST(MemoryLimit, IsNamedWhereMemoryRanOut) {
  EXPECT_EQ(memory_ran_out(), "memory ran out");
  EXPECT_EQ(in_child([] {
              limit_memory(size_t{64} << 20);
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
