#include "sandbox/sandboxed_trace.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "sandbox/process/closed_run.h"
#include "scripting/base/error.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/verify.h"

namespace sluice {

namespace {

ClosedRunLimits run_limits(const SandboxLimits& limits) {
  return {.seconds = limits.seconds,
          // A second of processor time more than the wall clock allows: it counts only if the parent's clock fails.
          .cpu_seconds = static_cast<int>(std::ceil(limits.seconds)) + 1,
          .memory = limits.memory,
          .most_answer = limits.most_answer,
          .command = limits.command};
}

/// One conversation with a child about the script `file`.
class Conversation {
 public:
  Conversation(std::string_view request, const std::string& file, const SandboxLimits& limits)
      : limits_(limits), file_(file), run_(run_closed(request, run_limits(limits))) {}

  const SandboxLayers& layers() const { return run_.greeting.layers; }

  TraceAnswer answer() const {
    check_end();
    try {
      return decode_answer(run_.answer(), file_);
    } catch (const InputError& error) {
      refuse(fmt::format("the process that traced the script answered with something else than a graph: {}", error.what()));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& message, std::string hint = {}) const {
    throw FlowError({file_, 0}, message, std::move(hint));
  }

  /// Throws unless the child answered and ended by itself.
  void check_end() const {
    if (run_.outcome.end == ChildOutcome::End::kOutOfTime) {
      refuse(fmt::format("the script did not end and was killed after {} s", limits_.seconds),
             "a flow builds a graph once; it needs no long loops and no deep recursion");
    }
    if (run_.outcome.end == ChildOutcome::End::kTooMuchOutput) {
      refuse(fmt::format("the process that traced the script answered with more than {} bytes, which no graph has",
                         limits_.most_answer));
    }
    if (WIFSIGNALED(run_.outcome.status)) refuse_killed(WTERMSIG(run_.outcome.status));
    if (!WIFEXITED(run_.outcome.status) || WEXITSTATUS(run_.outcome.status) != 0 || run_.answer().empty()) {
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
        if (!run_.answer().empty()) refuse("the process that traced the script answered but did not end, and was killed");
        // By nobody here: memory and time are bounded, and end in other ways.
        throw InternalError("sandbox: the process that traced the script was killed from outside; is the machine out of memory?");
      default:
        refuse(fmt::format("the script crashed the process that traced it (signal {})", signal),
               "the script was stopped safely; a simpler one may not meet the fault");
    }
  }

  const SandboxLimits& limits_;
  const std::string& file_;
  ClosedRun run_;
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

/// Everything that `trace` guarantees of its result, established anew, and that patterns have readers.
void check_graph(const FlowGraph& graph, const TraceOptions& options) {
  verify(graph);
  verify_readers(graph);
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
