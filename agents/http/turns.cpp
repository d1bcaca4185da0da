#include "agents/http/turns.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "agents/http/http_problem.h"
#include "scripting/base/freed_memory.h"

namespace sluice {

Turns::Turns(const Limits& limits, std::string refusal) : limits_(limits), refusal_(std::move(refusal)) {}

int Turns::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(line_.size());
}

bool Turns::may_have_one(const Caller& caller) const {
  if (running_ >= limits_.most) return false;
  if (!limits_.leaves_room) return true;
  const int left_by_others = limits_.most - (running_ - caller.running);
  return caller.running < std::max(1, left_by_others / 2);
}

void Turns::begin(const std::string& caller) {
  Caller& its = callers_[caller];
  ++its.running;
  ++running_;
  level_ = std::max(level_, its.seconds);
}

bool Turns::has_place(const std::string& caller) {
  if (static_cast<int>(line_.size()) < limits_.line) return true;
  if (line_.empty()) return false;
  const auto most = std::max_element(callers_.begin(), callers_.end(),
                                     [](const auto& a, const auto& b) { return a.second.waiting < b.second.waiting; });
  if (most->second.waiting <= callers_.at(caller).waiting + 1) return false;  // nobody loses a place to an equal
  const auto last = std::find_if(line_.rbegin(), line_.rend(), [&](const Waiting* each) { return each->caller == most->first; });
  (*last)->state = Wait::kLostPlace;
  (*last)->changed.notify_one();
  --most->second.waiting;
  line_.erase(std::next(last).base());
  return true;
}

void Turns::serve_line() {
  while (running_ < limits_.most) {
    auto chosen = line_.end();
    const auto order = [&](const Waiting* each) {
      const Caller& caller = callers_.at(each->caller);
      return std::tuple(caller.running, caller.seconds);
    };
    for (auto each = line_.begin(); each != line_.end(); ++each) {
      if (!may_have_one(callers_.at((*each)->caller))) continue;
      if (chosen == line_.end() || order(*each) < order(*chosen)) chosen = each;
    }
    if (chosen == line_.end()) return;
    Waiting& waiting = **chosen;
    line_.erase(chosen);
    --callers_.at(waiting.caller).waiting;
    begin(waiting.caller);
    waiting.state = Wait::kHasTurn;
    waiting.changed.notify_one();
  }
}

void Turns::forget_if_gone(const std::string& caller) {
  const auto found = callers_.find(caller);
  if (found != callers_.end() && found->second.running == 0 && found->second.waiting == 0) callers_.erase(found);
}

Turn::Turn(Turns& turns, std::string caller) : turns_(turns), caller_(std::move(caller)) {
  std::unique_lock lock(turns_.mutex_);
  Turns::Caller& its = turns_.callers_.try_emplace(caller_, Turns::Caller{0, 0, turns_.level_}).first->second;
  bool has_turn = turns_.may_have_one(its);  // whoever waits though there are turns may have no more of them
  if (has_turn) {
    turns_.begin(caller_);
  } else if (turns_.has_place(caller_)) {
    Turns::Waiting waiting{caller_, {}, Turns::Wait::kWaits};
    ++its.waiting;
    const auto place = turns_.line_.insert(turns_.line_.end(), &waiting);
    waiting.changed.wait_for(lock, turns_.limits_.patience, [&] { return waiting.state != Turns::Wait::kWaits; });
    has_turn = waiting.state == Turns::Wait::kHasTurn;
    if (waiting.state == Turns::Wait::kWaits) {
      turns_.line_.erase(place);
      --its.waiting;
    }
  }
  if (!has_turn) {
    turns_.forget_if_gone(caller_);
    throw HttpProblem(503, turns_.refusal_).with_header("Retry-After", "1");
  }
  begun_ = Turns::Clock::now();
}

Turn::~Turn() {
  {
    const std::lock_guard lock(turns_.mutex_);
    Turns::Caller& its = turns_.callers_.at(caller_);
    --its.running;
    --turns_.running_;
    its.seconds += std::chrono::duration<double>(Turns::Clock::now() - begun_).count();
    turns_.serve_line();
    turns_.forget_if_gone(caller_);
  }
  if (turns_.limits_.frees_much) give_back_freed_memory();
}

void Caller::take(Turns& turns) {
  turn_.reset();
  turn_ = std::make_unique<Turn>(turns, name_);
}

}  // namespace sluice
