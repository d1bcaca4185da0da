#include "agents/server/token_guesses.h"

#include <utility>

#include "agents/server/network.h"

namespace sluice {
namespace {

constexpr double kPerSecond = 10;
constexpr double kAtOnce = 100;

size_t hash_of(const std::string& token) { return std::hash<std::string>()(token); }

}  // namespace

TokenGuesses::TokenGuesses(std::function<Clock::time_point()> now)
    : now_(std::move(now)), guesses_({kPerSecond, kAtOnce}, now_()) {}

std::optional<std::chrono::seconds> TokenGuesses::wait(const std::string& token, const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (known_.contains(hash_of(token))) return {};
  return guesses_.wait(network_of(address), now_());
}

void TokenGuesses::learn(const std::string& token, const std::string& address, bool is_known) {
  const std::lock_guard lock(mutex_);
  if (is_known) {
    known_.insert(hash_of(token));
    return;
  }
  known_.erase(hash_of(token));
  const Clock::time_point now = now_();
  guesses_.sweep(now);
  guesses_.take(network_of(address), now);
}

}  // namespace sluice
