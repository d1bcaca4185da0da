#include "agents/harness/flow_check.h"

#include <chrono>
#include <string>

#include "agents/server/http_problem.h"
#include "scripting/graph/error.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMostChecks = 2;                // at once
constexpr std::chrono::seconds kPatience{5};  // a check takes at most two

json refusal(const std::string& file, int line, const std::string& message, const std::string& hint) {
  json document = {{"ok", false}, {"file", file}, {"message", message}, {"hint", hint}};
  document["line"] = line > 0 ? json(line) : json(nullptr);
  return document;
}

}  // namespace

/// One of the few that may run.
class FlowCheck::Turn {
 public:
  explicit Turn(FlowCheck& check) : check_(check) {
    std::unique_lock lock(check_.mutex_);
    if (!check_.ended_.wait_for(lock, kPatience, [&] { return check_.running_ < kMostChecks; })) {
      throw HttpProblem(503, "too many scripts are being checked; try again in a moment").with_header("Retry-After", "1");
    }
    ++check_.running_;
  }
  ~Turn() {
    {
      const std::lock_guard lock(check_.mutex_);
      --check_.running_;
    }
    check_.ended_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  FlowCheck& check_;
};

json FlowCheck::check(const FlowScript& script) {
  if (!inspect_) throw HttpProblem(501, "this server checks no scripts");
  const Turn turn(*this);
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
