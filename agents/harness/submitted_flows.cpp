#include "agents/harness/submitted_flows.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "agents/http/http_problem.h"
#include "store/store.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "submission:";

[[noreturn]] void refuse(int status, const std::string& detail) { throw HttpProblem(status, detail).with("param", "flow"); }

store::SubmissionId id_of(const std::string& name) {
  store::SubmissionId id = 0;
  const char* end = name.data() + name.size();
  if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), end, id);
  // One name for each, since every name in use has an engine.
  if (id < 1 || name != fmt::format("{}{}", kPrefix, id)) {
    refuse(400, fmt::format("there is no flow \"{:.60}\"; a submission is named submission:12", name));
  }
  return id;
}

bool may_be_used(store::Status status) { return status == store::Status::kPassed || status == store::Status::kBelowThreshold; }

/// Why it ended so.
std::string reason_of(store::Store& store, store::SubmissionId id) {
  const auto evaluations = store.evaluations(id);
  return evaluations.empty() || evaluations.back().verdict.message.empty() ? "" : ": " + evaluations.back().verdict.message;
}

}  // namespace

FlowScript SubmittedFlows::script(const std::string& name) {
  const store::SubmissionId id = id_of(name);
  const auto store = stores_.borrow();
  const auto submission = store->get(id);
  if (!submission) refuse(404, fmt::format("there is no submission {}", id));
  if (!store::is_final(submission->status)) {
    refuse(400, fmt::format("submission {} is {}; it can be used once it is judged", id, store::name_of(submission->status)));
  }
  if (!may_be_used(submission->status)) {
    refuse(400, fmt::format("submission {} cannot be used, it is {}{}", id, store::name_of(submission->status),
                            reason_of(*store, id)));
  }
  return {name, submission->script};
}

}  // namespace sluice
