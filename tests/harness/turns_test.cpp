#include "agents/harness/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "agents/server/http_problem.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

TEST(Turns, OneThatEndsIsHadByAnother) {
  Turns turns(1, 1, 30s, "too many");
  std::optional<Turn> first(&turns);
  std::atomic<bool> had = false;
  std::thread waiting([&] {
    const Turn turn(&turns);
    had = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(had);
  first.reset();
  waiting.join();
  EXPECT_TRUE(had);
}

TEST(Turns, NobodyWaitsBehindAFullLine) {
  Turns turns(1, 0, 30s, "too many");
  const Turn first(&turns);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THROW(Turn{&turns}, HttpProblem);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
}

TEST(Turns, PatienceEnds) {
  Turns turns(1, 1, 0s, "too many");
  {
    const Turn first(&turns);
    EXPECT_THROW(Turn{&turns}, HttpProblem);
  }
  EXPECT_NO_THROW(Turn{&turns});
}

}  // namespace
}  // namespace sluice
