#include "agents/cli/interrupts.h"

#include <termios.h>
#include <unistd.h>

#include <ctime>

namespace sluice::cli {

namespace {

sigset_t interrupt_alone() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

/// Whether Ctrl-C is a signal or a key of the terminal on standard input; returns true if that has changed.
bool make_signal(bool is_signal) {
  termios settings{};
  if (::tcgetattr(STDIN_FILENO, &settings) != 0) return false;  // no terminal
  if (((settings.c_lflag & ISIG) != 0) == is_signal) return false;
  settings.c_lflag ^= ISIG;
  return ::tcsetattr(STDIN_FILENO, TCSANOW, &settings) == 0;
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t interrupt = interrupt_alone();
  pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  was_key_ = make_signal(true);
}

Interrupts::~Interrupts() {
  if (was_key_) make_signal(false);
  while (take()) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Interrupts::take() {
  const sigset_t interrupt = interrupt_alone();
  const timespec at_once{};
  return sigtimedwait(&interrupt, nullptr, &at_once) == SIGINT;
}

}  // namespace sluice::cli
