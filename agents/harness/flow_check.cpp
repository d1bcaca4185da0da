#include "agents/harness/flow_check.h"

#include <chrono>
#include <string>
#include <utility>

#include "agents/server/http_problem.h"
#include "scripting/graph/error.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMostChecks = 2;  // at once
constexpr int kLine = 64;
constexpr std::chrono::seconds kPatience{5};  // a check takes at most two

json refusal(const std::string& file, int line, const std::string& message, const std::string& hint) {
  json document = {{"ok", false}, {"file", file}, {"message", message}, {"hint", hint}};
  document["line"] = line > 0 ? json(line) : json(nullptr);
  return document;
}

}  // namespace

FlowCheck::FlowCheck(std::function<json(const FlowScript&)> inspect)
    : inspect_(std::move(inspect)),
      turns_(kMostChecks, kLine, kPatience, "too many scripts are being checked; try again in a moment") {}

json FlowCheck::check(const FlowScript& script) {
  if (!inspect_) throw HttpProblem(501, "this server checks no scripts");
  const Turn turn(&turns_);
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
