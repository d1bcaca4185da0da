#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace sluice {

/// Lets so many do something dear at once, and some others wait for their turn: each keeps a thread. Any number of threads may
/// use it.
class Turns {
 public:
  /// Who finds `line` waiting, or has no turn after `patience`, is refused with 503 and `refusal`.
  Turns(int most, int line, std::chrono::seconds patience, std::string refusal);

 private:
  friend class Turn;

  const int most_;
  const int line_;
  const std::chrono::seconds patience_;
  const std::string refusal_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
  int waiting_ = 0;
};

/// A turn, as long as it lives.
class Turn {
 public:
  /// Waits for it. Throws HttpProblem. Null: none is needed.
  explicit Turn(Turns* turns);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns* turns_;
};

}  // namespace sluice
