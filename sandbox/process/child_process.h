#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// How a child process ended, or why it was ended.
struct ChildOutcome {
  enum class End { kByItself, kOutOfTime, kTooMuchOutput };
  End end = End::kByItself;
  int status = 0;      // as waitpid gives it
  std::string output;  // what it wrote to standard output
};

struct ChildCommand {
  std::vector<std::string> words;  // the program's path and its arguments
  std::string_view input;          // its standard input
  double start_seconds = 1;        // of wall-clock time until its first output
  double seconds = 1;              // from then on; when either is over, it is killed
  size_t most_output = 0;          // bytes, beyond which it is killed
};

/// Runs a program with an environment of LD_LIBRARY_PATH at most and no descriptors but the three standard ones, in a session of
/// its own, and kills its process group when it closes its standard output, when its time is up or when it writes too much.
/// Returns once it is gone and reaped; its standard error is thrown away. Any number of threads may run children at once. Throws
/// InternalError if the program cannot be started.
ChildOutcome run_child(const ChildCommand& command);

}  // namespace sluice
