#include "agents/http/stop_signal.h"

#include <csignal>

namespace sluice {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void StopSignal::wait() {
  const sigset_t set = stop_signals();
  int received = 0;
  ::sigwait(&set, &received);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace sluice
