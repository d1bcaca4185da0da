#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agents/http/http_message.h"
#include "scripting/base/json_object.h"

namespace sluice::mcp {

/// How long the caller has to wait before a call that writes, or one that only reads; nothing: it may go on.
using CallLimit = std::function<std::optional<std::chrono::seconds>(bool writes)>;

/// Who calls a tool, and how long the answer is of use.
struct ToolCall {
  std::optional<Identity> identity;
  std::string caller;                              // tells callers apart, with or without a token (`caller_of`)
  bool sent_token = false;                         // which may be nobody's
  std::function<bool()> is_wanted;                 // false once the client has gone or the server stops
  std::chrono::steady_clock::time_point deadline;  // of the whole HTTP request: tools do not wait longer
  CallLimit limit;                                 // of whoever calls; null: none
};

/// What a tool answers. Clients show a model either `structured` or `text`, so each of them says everything.
struct ToolResult {
  std::string text;
  nlohmann::json structured = nullptr;  // an object that follows the tool's output schema; null: the text is all
  bool is_error = false;
};

/// What a client may ask for by name. `title`, `description` and `annotations` are for people and models to choose by.
struct Tool {
  std::string name;
  std::string title;
  std::string description;
  nlohmann::json input_schema;             // arguments are checked against it before `call`
  nlohmann::json output_schema = nullptr;  // null: no structured content
  nlohmann::json annotations;
  /// Runs in the thread of a connection. What it throws as HttpProblem or InputError is told to the model, which can act on it;
  /// everything else is a fault of ours.
  std::function<ToolResult(const JsonObject& arguments, const ToolCall& call)> call;
};

/// The tool as `tools/list` tells it.
nlohmann::json definition_of(const Tool& tool);

/// Checks the arguments and calls the tool. What went wrong is a result with `isError` and what to do about it.
nlohmann::json call_tool(const Tool& tool, const nlohmann::json& arguments, const ToolCall& call);

}  // namespace sluice::mcp
