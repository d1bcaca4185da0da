#include "agents/harness/flow_check.h"

#include <string>
#include <utility>

#include "agents/http/http_problem.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using nlohmann::json;

json refusal(const std::string& file, int line, const std::string& message, const std::string& hint) {
  json document = {{"ok", false}, {"file", file}, {"message", message}, {"hint", hint}};
  document["line"] = line > 0 ? json(line) : json(nullptr);
  return document;
}

}  // namespace

FlowCheck::FlowCheck(std::function<json(const FlowScript&)> inspect, const Turns::Limits& limits)
    : inspect_(std::move(inspect)), turns_(limits, "too many scripts are being checked; try again in a moment") {}

json FlowCheck::check(const FlowScript& script, Caller& caller) {
  if (!inspect_) throw HttpProblem(501, "this server checks no scripts");
  caller.take(turns_);
  try {
    json document = inspect_(script);
    document["ok"] = true;
    return document;
  } catch (const FlowError& error) {
    return refusal(error.where().file, error.where().line, error.message(), error.hint());
  } catch (const InputError& error) {
    return refusal(script.file, 0, error.what(), error.hint());
  }
}

}  // namespace sluice
