#include "agents/http/token_guesses.h"

#include <utility>

#include "agents/http/network.h"

namespace sluice {
namespace {

constexpr double kPerSecond = 10;
constexpr double kAtOnce = 100;

}  // namespace

TokenGuesses::TokenGuesses(std::function<Clock::time_point()> now)
    : now_(std::move(now)), guesses_({kPerSecond, kAtOnce}, now_()) {}

std::optional<std::chrono::seconds> TokenGuesses::count(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = now_();
  guesses_.sweep(now);
  return guesses_.take(network_of(address), now);
}

}  // namespace sluice
