#include "sandbox/sandboxed_trace.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "sandbox/process/child.h"
#include "sandbox/process/child_process.h"
#include "scripting/base/resource_error.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/verify.h"

namespace sluice {

namespace {

// Starting takes milliseconds. A machine so busy that it takes seconds is no fault of the script's.
constexpr double kStartSeconds = 20;

/// One conversation with a child about the script `file`.
class Conversation {
 public:
  Conversation(std::string_view request, const std::string& file, const SandboxLimits& limits) : limits_(limits), file_(file) {
    std::vector<std::string> words = limits.command;
    // A second of processor time more than the wall clock allows: it counts only if the parent's clock fails.
    const int cpu_seconds = static_cast<int>(std::ceil(limits.seconds)) + 1;
    for (std::string& word : child_arguments({limits.memory, cpu_seconds})) words.push_back(std::move(word));
    outcome_ = run_child({words, request, kStartSeconds, limits.seconds, limits.most_answer});
    read_greeting();
  }

  const SandboxLayers& layers() const { return greeting_.layers; }

  TraceAnswer answer() const {
    check_end();
    try {
      return decode_answer(rest_, file_);
    } catch (const InputError& error) {
      refuse(fmt::format("the process that traced the script answered with something else than a graph: {}", error.what()));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& message, std::string hint = {}) const {
    throw FlowError({file_, 0}, message, std::move(hint));
  }

  /// No script has been read before the greeting: what goes wrong until then is not a script's fault.
  void read_greeting() {
    rest_ = outcome_.output;
    try {
      greeting_ = take_greeting(rest_);
    } catch (const InputError&) {
      throw ResourceError(fmt::format("sandbox: the child {} did not start{}", limits_.command.front(),
                                      outcome_.end == ChildOutcome::End::kOutOfTime ? " in time" : ""));
    }
    if (!greeting_.problem.empty()) throw InternalError("sandbox: it cannot be entered: " + greeting_.problem);
    if (!greeting_.layers.seccomp) throw InternalError("sandbox: the child runs without seccomp");
  }

  /// Throws unless the child answered and ended by itself.
  void check_end() const {
    if (outcome_.end == ChildOutcome::End::kOutOfTime) {
      refuse(fmt::format("the script did not end and was killed after {} s", limits_.seconds),
             "a flow builds a graph once; it needs no long loops and no deep recursion");
    }
    if (outcome_.end == ChildOutcome::End::kTooMuchOutput) {
      refuse(fmt::format("the process that traced the script answered with more than {} bytes, which no graph has",
                         limits_.most_answer));
    }
    if (WIFSIGNALED(outcome_.status)) refuse_killed(WTERMSIG(outcome_.status));
    if (!WIFEXITED(outcome_.status) || WEXITSTATUS(outcome_.status) != 0 || rest_.empty()) {
      refuse("the process that traced the script ended without an answer");
    }
  }

  [[noreturn]] void refuse_killed(int signal) const {
    switch (signal) {
      case SIGSYS:
        refuse("the script made its process try what no flow may do, and was killed",
               "a flow computes; it cannot reach the system");
      case SIGXCPU:
        refuse("the script used too much processor time and was killed",
               "a flow builds a graph once; it needs no long loops and no deep recursion");
      case SIGKILL:
        if (!rest_.empty()) refuse("the process that traced the script answered but did not end, and was killed");
        // By nobody here: memory and time are bounded, and end in other ways.
        throw InternalError("sandbox: the process that traced the script was killed from outside; is the machine out of memory?");
      default:
        refuse(fmt::format("the script crashed the process that traced it (signal {})", signal),
               "the script was stopped safely; a simpler one may not meet the fault");
    }
  }

  const SandboxLimits& limits_;
  const std::string& file_;
  ChildOutcome outcome_;
  Greeting greeting_;
  std::string_view rest_;  // of the output, behind the greeting
};

[[noreturn]] void rethrow(const Diagnostic& diagnostic, const std::string& file) {
  switch (diagnostic.kind) {
    case Diagnostic::Kind::kInput:
      throw InputError(diagnostic.message, diagnostic.hint);
    case Diagnostic::Kind::kInternal:
      throw InternalError(diagnostic.message);
    case Diagnostic::Kind::kFlow:
      break;
  }
  throw FlowError({file, diagnostic.line}, diagnostic.message, diagnostic.hint);
}

/// Everything that `trace` guarantees of its result, established anew.
void check_graph(const FlowGraph& graph, const TraceOptions& options) {
  verify(graph);
  if (graph.geometry.head_dim != options.head_dim || graph.geometry.group != options.group) {
    throw FlowError(graph.where, "the graph is for other heads than it was traced for");
  }
  if (const auto& rule = graph.recompute; rule != nullptr && rule->kind == Recompute::Kind::kSelected) {
    const int heads = std::min(options.heads > 0 ? options.heads : options.group, GraphLimits::kGroup);
    if (rule->graph.geometry.group != heads || rule->graph.geometry.page != graph.geometry.page)
      throw FlowError(rule->where, "the rule of what is computed again is for another model or other pages");
  }
  if (options.layers > 0) {
    verify_layers(graph, options.layers);
    verify_recompute_layer(graph, options.layers);
  }
}

}  // namespace

FlowGraph trace_sandboxed(std::string_view source, const std::string& file, const TraceOptions& options,
                          const SandboxLimits& limits) {
  // One byte too many is enough to be refused.
  const TraceRequest request = {options, std::string(source.substr(0, kLargestSource + 1))};
  TraceAnswer answer = Conversation(encode(request), file, limits).answer();
  if (const auto* diagnostic = std::get_if<Diagnostic>(&answer)) rethrow(*diagnostic, file);
  FlowGraph graph = std::get<FlowGraph>(std::move(answer));
  check_graph(graph, options);
  return graph;
}

SandboxLayers sandbox_layers(const SandboxLimits& limits) {
  const std::string file;
  return Conversation({}, file, limits).layers();
}

}  // namespace sluice
