#include "agents/server/token_guesses.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

TEST(TokenGuesses, ManyTokensThatNobodyHasHaveToWait) {
  TokenGuesses::Clock::time_point now;
  TokenGuesses guesses([&now] { return now; });
  guesses.learn("right", "10.0.0.1", true);
  int looks = 0;
  const auto guess = [&](const std::string& address) {
    const std::string token = "guess " + std::to_string(++looks);
    if (guesses.wait(token, address)) return false;
    guesses.learn(token, address, false);
    return true;
  };
  while (guess("10.0.0.1")) ASSERT_LE(looks, 1000);
  EXPECT_GT(looks, 10) << "a few mistakes are nobody's attack";
  EXPECT_GE(guesses.wait("another", "10.0.0.1").value(), 1s);
  EXPECT_FALSE(guesses.wait("right", "10.0.0.1")) << "others at the address go on";
  EXPECT_FALSE(guesses.wait("another", "10.0.0.2"));
  now += 1s;
  EXPECT_TRUE(guess("10.0.0.1"));
  guesses.learn("right", "10.0.0.1", false);  // it was replaced
  while (guess("10.0.0.1")) ASSERT_LE(looks, 1000);
  EXPECT_TRUE(guesses.wait("right", "10.0.0.1"));
}

}  // namespace
}  // namespace sluice::test
