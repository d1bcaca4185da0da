#include "agents/http/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agents/http/http_problem.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr const char* kRefusal = "too many";

/// Somebody in a thread of its own who waits for a turn, and keeps it until it is told to go.
class Somebody {
 public:
  Somebody(Turns& turns, const std::string& caller, int place, std::vector<std::string>& order)
      : thread_([&turns, &order, caller, this] {
          static std::mutex mutex;
          try {
            const Turn turn(turns, caller);
            const std::lock_guard lock(mutex);
            order.push_back(caller);
          } catch (const HttpProblem&) {
            refused_ = true;
          }
        }) {
    while (turns.waiting() < place) std::this_thread::sleep_for(1ms);
  }
  void join() { thread_.join(); }
  bool refused() const { return refused_; }

 private:
  std::atomic<bool> refused_ = false;
  std::thread thread_;
};

TEST(Turns, OneThatEndsIsHadByAnother) {
  Turns turns({.most = 1, .line = 1, .patience = 30s}, kRefusal);
  std::optional<Turn> first(std::in_place, turns, "ada");
  std::atomic<bool> had = false;
  std::thread waiting([&] {
    const Turn turn(turns, "ada");
    had = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(had);
  first.reset();
  waiting.join();
  EXPECT_TRUE(had);
}

TEST(Turns, NobodyWaitsBehindAFullLine) {
  Turns turns({.most = 1, .line = 0, .patience = 30s}, kRefusal);
  const Turn first(turns, "ada");
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THROW(Turn(turns, "bob"), HttpProblem);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
}

TEST(Turns, PatienceEnds) {
  Turns turns({.most = 1, .line = 1}, kRefusal);
  {
    const Turn first(turns, "ada");
    EXPECT_THROW(Turn(turns, "bob"), HttpProblem);
  }
  EXPECT_NO_THROW(Turn(turns, "bob"));
}

TEST(Turns, CallersTakeTurnsHoweverManyOfOneWait) {
  Turns turns({.most = 1, .line = 16, .patience = 30s}, kRefusal);
  auto first = std::make_unique<Turn>(turns, "ada");
  std::vector<std::string> order;
  std::vector<std::unique_ptr<Somebody>> all;
  for (const char* caller : {"ada", "ada", "ada", "ada", "bob", "eve"}) {
    all.push_back(std::make_unique<Somebody>(turns, caller, static_cast<int>(all.size()) + 1, order));
  }
  std::this_thread::sleep_for(20ms);  // of ada's time
  first.reset();
  for (const auto& each : all) each->join();
  ASSERT_EQ(order.size(), all.size());
  EXPECT_EQ(order[0], "bob") << "whoever had less time";
  EXPECT_EQ(order[1], "eve");
}

TEST(Turns, APlaceInAFullLineIsTakenFromWhoeverHasMore) {
  Turns turns({.most = 1, .line = 3, .patience = 30s}, kRefusal);
  auto first = std::make_unique<Turn>(turns, "ada");
  std::vector<std::string> order;
  std::vector<std::unique_ptr<Somebody>> ada;
  for (int i = 0; i < 3; ++i) ada.push_back(std::make_unique<Somebody>(turns, "ada", i + 1, order));
  EXPECT_THROW(Turn(turns, "ada"), HttpProblem) << "her line is full, and nobody has more";
  Somebody bob(turns, "bob", 3, order);
  ada.back()->join();
  EXPECT_TRUE(ada.back()->refused());
  first.reset();
  ada[0]->join();
  ada[1]->join();
  bob.join();
  EXPECT_FALSE(bob.refused());
  EXPECT_EQ(order.size(), 3U);
}

TEST(Turns, NobodyLosesAPlaceToAnEqual) {
  Turns turns({.most = 1, .line = 2, .patience = 30s}, kRefusal);
  auto first = std::make_unique<Turn>(turns, "x");
  std::vector<std::string> order;
  Somebody ada(turns, "ada", 1, order);
  Somebody bob(turns, "bob", 2, order);
  EXPECT_THROW(Turn(turns, "eve"), HttpProblem);
  first.reset();
  ada.join();
  bob.join();
  EXPECT_FALSE(ada.refused() || bob.refused());
}

TEST(Turns, OneCallerLeavesRoomWhereTurnsAreHeldLong) {
  Turns turns({.most = 4, .leaves_room = true}, kRefusal);
  const Turn first(turns, "ada");
  const Turn second(turns, "ada");
  EXPECT_THROW(Turn(turns, "ada"), HttpProblem);
  const Turn third(turns, "bob");
  const Turn fourth(turns, "eve");
  EXPECT_THROW(Turn(turns, "dan"), HttpProblem);
}

}  // namespace
}  // namespace sluice
