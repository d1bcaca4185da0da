#include "agents/harness/turns.h"

#include <utility>

#include "agents/server/http_problem.h"

namespace sluice {

Turns::Turns(int most, int line, std::chrono::seconds patience, std::string refusal)
    : most_(most), line_(line), patience_(patience), refusal_(std::move(refusal)) {}

Turn::Turn(Turns* turns) : turns_(turns) {
  if (turns_ == nullptr) return;
  std::unique_lock lock(turns_->mutex_);
  const auto is_free = [&] { return turns_->running_ < turns_->most_; };
  if (!is_free() && turns_->waiting_ < turns_->line_) {
    ++turns_->waiting_;
    turns_->ended_.wait_for(lock, turns_->patience_, is_free);
    --turns_->waiting_;
  }
  if (!is_free()) throw HttpProblem(503, turns_->refusal_).with_header("Retry-After", "1");
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
