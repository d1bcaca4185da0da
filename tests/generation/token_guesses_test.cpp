#include "agents/http/token_guesses.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

TEST(TokenGuesses, ManyTokensThatNobodyHasHaveToWait) {
  TokenGuesses::Clock::time_point now;
  TokenGuesses guesses([&now] { return now; });
  int mistakes = 0;
  while (!guesses.count("10.0.0.1")) ASSERT_LE(++mistakes, 1000);
  EXPECT_GT(mistakes, 10) << "a few mistakes are nobody's attack";
  EXPECT_GE(guesses.count("10.0.0.1").value(), 1s);
  EXPECT_FALSE(guesses.count("10.0.0.2"));
  now += 1s;
  EXPECT_FALSE(guesses.count("10.0.0.1"));
}

}  // namespace
}  // namespace sluice::test
