#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace sluice {

/// Lets so many do something dear at once, and some others wait for their turn: each keeps a thread. Callers take turns: next is
/// one of those who have the fewest turns at the moment, of these who had the least time so far, and of equals who waits longest.
/// So whoever asks now and then waits for about one turn of somebody else, however many of those wait. Any number of threads may
/// use it.
class Turns {
 public:
  struct Limits {
    int most = 1;                           // turns at once
    int line = 0;                           // that may wait
    std::chrono::milliseconds patience{0};  // after which a wait ends
    /// For turns that are held long: one caller has at most half of what others leave, so that a newcomer finds one.
    bool leaves_room = false;
    bool frees_much = false;  // what they do takes memory worth giving back to the system
  };

  /// Who has no turn after `patience` is refused with 503 and `refusal`, and so is who finds a full line, unless somebody else
  /// has more places in it than he would have: then the last of those is refused instead.
  Turns(const Limits& limits, std::string refusal);

  /// How many wait.
  int waiting() const;

 private:
  friend class Turn;
  using Clock = std::chrono::steady_clock;

  enum class Wait : uint8_t { kWaits, kHasTurn, kLostPlace };
  struct Waiting {
    const std::string& caller;
    std::condition_variable changed;
    Wait state = Wait::kWaits;
  };
  /// One who has turns or waits for some.
  struct Caller {
    int running = 0;
    int waiting = 0;
    double seconds = 0;  // of turns, from `level_` on
  };

  // All of these with the lock held.
  void begin(const std::string& caller);
  bool may_have_one(const Caller& caller) const;
  bool has_place(const std::string& caller);
  void serve_line();
  void forget_if_gone(const std::string& caller);

  const Limits limits_;
  const std::string refusal_;
  mutable std::mutex mutex_;
  std::list<Waiting*> line_;  // in order of arrival
  std::map<std::string, Caller> callers_;
  int running_ = 0;
  double level_ = 0;  // seconds of who was served last: newcomers begin there, and do not make up for the time before they came
};

/// A turn, as long as it lives.
class Turn {
 public:
  /// Waits for it. Throws HttpProblem.
  Turn(Turns& turns, std::string caller);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns& turns_;
  const std::string caller_;
  Turns::Clock::time_point begun_;
};

/// Who asks for something, and the turn that it has until it is answered.
class Caller {
 public:
  /// `name` tells callers apart (`caller_of`).
  explicit Caller(std::string name) : name_(std::move(name)) {}

  /// Waits for a turn; one that it had before has ended. Throws HttpProblem.
  void take(Turns& turns);
  void end_turn() { turn_.reset(); }

 private:
  std::string name_;
  std::unique_ptr<Turn> turn_;
};

}  // namespace sluice
