#include "agents/generation/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>

#include "agents/http/http_problem.h"
#include "tests/support/eventually.h"

namespace sluice::test {
namespace {

TEST(PlanCache, AFlowThatTwoAskForAtOnceIsMadeOnce) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> made = 0;
  PlanCache plans([&](const std::string&) {
    ++made;
    gone.wait();
    return Plan{};
  });
  auto ada = std::async(std::launch::async, [&] { return plans.get("quest", "ada"); });
  ASSERT_TRUE(testing::eventually([&] { return made == 1; }));
  auto bob = std::async(std::launch::async, [&] { return plans.get("quest", "bob"); });
  ASSERT_TRUE(testing::eventually([&] { return plans.waiting() == 1 || made == 2; }));
  go.set_value();
  EXPECT_EQ(ada.get(), bob.get());
  EXPECT_EQ(made, 1);
}

TEST(PlanCache, WhoWaitedForOneThatFailedMakesIt) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> tries = 0;
  PlanCache plans([&](const std::string&) {
    if (++tries > 1) return Plan{};
    gone.wait();
    throw std::runtime_error("once");
  });
  auto ada = std::async(std::launch::async, [&] { return plans.get("quest", "ada"); });
  ASSERT_TRUE(testing::eventually([&] { return tries == 1; }));
  auto bob = std::async(std::launch::async, [&] { return plans.get("quest", "bob"); });
  ASSERT_TRUE(testing::eventually([&] { return plans.waiting() == 1; }));
  go.set_value();
  EXPECT_THROW(ada.get(), std::runtime_error);
  EXPECT_NE(bob.get(), nullptr);
  EXPECT_EQ(tries, 2);
}

TEST(PlanCache, NobodyWaitsForeverForWhatAnotherMakes) {
  std::promise<void> go;
  std::atomic<bool> making = false;
  PlanCache plans(
      [&, gone = go.get_future().share()](const std::string&) {
        making = true;
        gone.wait();
        return Plan{};
      },
      std::chrono::milliseconds(20));
  auto ada = std::async(std::launch::async, [&] { return plans.get("quest", "ada"); });
  ASSERT_TRUE(testing::eventually([&] { return making.load(); }));
  try {
    plans.get("quest", "bob");
    ADD_FAILURE() << "bob got what is not made";
  } catch (const HttpProblem& problem) {
    EXPECT_EQ(problem.status(), 503);
  }
  EXPECT_EQ(plans.waiting(), 0);
  go.set_value();
  EXPECT_EQ(ada.get(), plans.get("quest", "bob"));
}

}  // namespace
}  // namespace sluice::test
