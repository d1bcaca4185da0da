// A child of trace_sandboxed that tries what a hijacked one might try. Its arguments:
//   start (ours)   answers with what it was born with
//   try N (ours)   closes itself in, tries the system call N of attempts.h, and answers "survived" if it can

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "sandbox/process/confinement.h"
#include "sandbox/wire/messages.h"
#include "tests/sandbox/attempts.h"

namespace {

void send(const std::string& bytes) {
  if (write(STDOUT_FILENO, bytes.data(), bytes.size()) < 0) _exit(1);
}

[[noreturn]] void answer(const std::string& message) {
  send(encode(sluice::TraceAnswer(sluice::Diagnostic{sluice::Diagnostic::Kind::kFlow, 0, message, {}})));
  _exit(0);
}

[[noreturn]] void report_start() {
  int descriptors = 0;
  for (int descriptor = 0; descriptor < 4096; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1) ++descriptors;
  }
  std::string variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables += std::string(*variable) + " ";
  send(encode(sluice::Greeting{{true, 0}, {}}));
  const char* session = getsid(0) == getpid() ? "own" : "foreign";
  answer(std::to_string(descriptors) + " descriptors, variables (" + variables + "), " + session + " session");
}

[[noreturn]] void try_one(size_t index, size_t memory, int seconds) {
  const sluice::SandboxLayers layers = sluice::confine({memory, seconds});
  send(encode(sluice::Greeting{layers, {}}));
  try {
    sluice::test::kAttempts[index].run();
  } catch (const std::bad_alloc&) {
    answer("no memory");
  }
  answer("survived");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "start") report_start();
  // try N word parent memory seconds
  if (mode == "try" && argc == 7)
    try_one(std::strtoul(argv[2], nullptr, 10), std::strtoul(argv[5], nullptr, 10), std::atoi(argv[6]));
  return 1;
}
