#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "scripting/graph/graph.h"
#include "scripting/lua/parameters.h"

namespace sluice {

/// Bytes that the source of a flow may have.
inline constexpr size_t kLargestSource = size_t{64} << 10;

/// What one KV head of the model looks like, and how many layers it has; the page size and KV type come from the script. And how
/// much the script may use.
struct TraceOptions {
  int head_dim = 64;
  int group = 4;
  int layers = 0;                     // 0: not known yet
  int heads = 0;                      // query heads of the model, which flow.recompute sees; 0: those of one KV head
  double seconds = 1.0;               // wall-clock limit of the script
  size_t memory = size_t{64} << 20;   // bytes the script may allocate
  int64_t instructions = 50'000'000;  // of the Lua machine
  /// What parameters of the script are set to; those that are not named have their own values. A name that no parameter has is
  /// refused, and so is a value that is not of the parameter's kind.
  ParameterValues parameters = {};
  /// Called with the refusal the moment that one of the limits is passed, in the midst of the script. It may end the process; it
  /// must not throw. Where it is empty or returns, the script is stopped by an error.
  std::function<void(const FlowError& refusal)> on_stop = {};
};

/// Runs the Lua chunk `source` once over symbolic tensors and returns the verified graph (`verify`, not `verify_readers`).
/// The chunk sees `sluice` and an allow-listed part of Lua's library; it cannot do I/O, and is stopped at the limits.
/// `file` is used in diagnostics. Throws FlowError; InputError for impossible options.
FlowGraph trace(std::string_view source, const std::string& file, const TraceOptions& options = {});

/// A script in the middle of being written: its graph so far, and what a stage returned, which may be anything.
struct Inspection {
  enum class Kind : uint8_t { kNothing, kTensor, kSelection, kPattern, kNumber, kText, kOther };
  FlowGraph graph;
  Kind kind = Kind::kNothing;
  NodeId node = kNoNode;  // kTensor (a state counts as one, loaded), kSelection
  double number = 0;      // kNumber
  std::string text;       // kText; for kPattern and kOther what it is: "a table"
};

/// As `trace`, for a flow that is not finished: nothing is asked of what its stages return, and states need not be both saved and
/// loaded. `stage`: whose result is told, kIndex or kAfter. Throws as `trace` does.
Inspection inspect(std::string_view source, const std::string& file, const TraceOptions& options = {},
                   Stage stage = Stage::kIndex);

/// Reads `path` and traces it. Throws InputError if the file cannot be read.
FlowGraph trace_file(const std::string& path, const TraceOptions& options = {});

}  // namespace sluice
