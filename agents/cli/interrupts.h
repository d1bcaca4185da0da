#pragma once

#include <csignal>

namespace sluice::cli {

/// Takes Ctrl-C from the process for as long as it lives: SIGINT waits until it is asked for, and a terminal sends it where an
/// editor has made a key of it. Threads that start meanwhile never receive it. What has not been asked for at the end is
/// forgotten.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Whether there was one since the last time; for as long as an object lives.
  static bool take();

 private:
  sigset_t before_{};
  bool was_key_ = false;  // of the terminal
};

}  // namespace sluice::cli
