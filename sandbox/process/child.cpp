#include "sandbox/process/child.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <new>
#include <string_view>

#include "sandbox/wire/messages.h"
#include "sandbox/wire/pattern_wire.h"

namespace sluice {

namespace {

constexpr std::string_view kWord = "__trace_sandboxed";
constexpr int kArguments = 5;  // program, word, parent, memory, seconds
constexpr int kDone = 0;
constexpr int kFailed = 1;

// Ends without destructors and exit handlers: nothing of this process is worth keeping, and the less that runs the better.
[[noreturn]] void end(int code) { _exit(code); }

void send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) end(kFailed);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
}

std::string receive() {
  std::string bytes;
  std::array<char, size_t{16} << 10> buffer;
  while (true) {
    const ssize_t size = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size == 0) return bytes;
    if (size < 0 && errno != EINTR) end(kFailed);
    if (size > 0) bytes.append(buffer.data(), static_cast<size_t>(size));
  }
}

template <typename Number>
Number number_of(const char* argument) {
  const std::string_view text = argument;
  Number number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) throw InternalError(fmt::format("\"{}\" is no number", text));
  return number;
}

/// Dies with its parent. The parent may have died already, before the kernel was told.
void follow_parent(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) throw InternalError("the kernel does not watch the parent");
  if (getppid() != parent) end(kFailed);
}

/// `main` gives these as they are in memory: `argc` many.
Greeting enter(int argc, const char* const* argv) {
  Greeting greeting;
  try {
    if (argc != kArguments) throw InternalError("the child was started with the wrong arguments");
    follow_parent(number_of<pid_t>(argv[2]));
    greeting.layers = confine({number_of<size_t>(argv[3]), number_of<int>(argv[4])});
  } catch (const std::exception& error) {
    greeting.problem = error.what();
  }
  return greeting;
}

Diagnostic diagnostic_of(const FlowError& error) {
  return {Diagnostic::Kind::kFlow, error.where().line, error.message(), error.hint()};
}

/// The moment that a limit is passed is the end: nothing that the script might still do is run.
void answer_and_end(const FlowError& refusal) {
  send(encode(TraceAnswer(diagnostic_of(refusal))));
  end(kDone);
}

TraceAnswer trace_of(TraceRequest& request) {
  request.options.on_stop = answer_and_end;
  return trace(request.source, {}, request.options);
}

void send_solutions(const SolveRequest& request) {
  const auto solved = [&](const Pattern& pattern) -> std::shared_ptr<const PatternSolution> {
    try {
      return solve(pattern, request.operations);
    } catch (const std::exception&) {
      return nullptr;  // memory was short
    }
  };
  for (const Pattern& each : request.patterns) {
    WireWriter writer;
    writer.text(encode_solution(solved(each).get()));
    send(writer.bytes());
  }
}

/// Does what is asked, and answers.
void serve() {
  const auto refuse = [](const Diagnostic& diagnostic) { send(encode(TraceAnswer(diagnostic))); };
  try {
    ChildRequest request = decode_request(receive());
    if (auto* trace = std::get_if<TraceRequest>(&request)) return send(encode(trace_of(*trace)));
    send_solutions(std::get<SolveRequest>(request));
  } catch (const FlowError& error) {
    refuse(diagnostic_of(error));
  } catch (const InputError& error) {
    refuse({Diagnostic::Kind::kInput, 0, error.what(), error.hint()});
  } catch (const std::bad_alloc&) {
    refuse({Diagnostic::Kind::kFlow, 0, "the script uses too much memory", {}});
  } catch (const std::exception& error) {
    refuse({Diagnostic::Kind::kInternal, 0, error.what(), {}});
  }
}

}  // namespace

std::vector<std::string> child_arguments(const ChildLimits& limits) {
  return {std::string(kWord), fmt::format("{}", getpid()), fmt::format("{}", limits.memory),
          fmt::format("{}", limits.cpu_seconds)};
}

bool is_sandbox_child(int argc, const char* const* argv) { return argc > 1 && argv[1] == kWord; }

void run_sandbox_child(int argc, const char* const* argv) {
  const Greeting greeting = enter(argc, argv);
  send(encode(greeting));
  if (!greeting.problem.empty()) end(kFailed);
  serve();
  end(kDone);
}

}  // namespace sluice
