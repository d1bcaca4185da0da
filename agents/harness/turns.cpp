#include "agents/harness/turns.h"

#include <utility>

#include "agents/server/http_problem.h"

namespace sluice {

Turns::Turns(int most, std::chrono::seconds patience, std::string refusal)
    : most_(most), patience_(patience), refusal_(std::move(refusal)) {}

Turn::Turn(Turns* turns) : turns_(turns) {
  if (turns_ == nullptr) return;
  std::unique_lock lock(turns_->mutex_);
  if (!turns_->ended_.wait_for(lock, turns_->patience_, [&] { return turns_->running_ < turns_->most_; })) {
    throw HttpProblem(503, turns_->refusal_).with_header("Retry-After", "1");
  }
  ++turns_->running_;
}

Turn::~Turn() {
  if (turns_ == nullptr) return;
  {
    const std::lock_guard lock(turns_->mutex_);
    --turns_->running_;
  }
  turns_->ended_.notify_one();
}

}  // namespace sluice
