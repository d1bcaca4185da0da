#include "agents/client/repl_server.h"

#include <fmt/format.h>

#include <string>

#include "agents/client/metric_text.h"
#include "agents/client/submission_text.h"
#include "agents/client/verdict_wait.h"
#include "scripting/base/json_object.h"

namespace sluice {

using nlohmann::json;

HarnessClient& ReplServer::client() {
  if (!client_) client_.emplace(access_);
  return *client_;
}

repl::FlowServer::Receipt ReplServer::submit(const std::string& name, const std::string& script,
                                             const std::vector<int64_t>& parents) {
  const json submission = client().submit({{"name", name}, {"script", script}, {"parents", parents}});
  const int64_t id = submission.at("id");
  return {id, fmt::format("{}{}  {}/v1/submissions/{}\n", submission_line(submission), repetition_note(submission),
                          client().address(), id)};
}

std::string ReplServer::wait(int64_t id, const repl::Style& style, const std::function<bool()>& interrupted) {
  try {
    const json submission = wait_on_terminal(client(), id, std::chrono::hours(24), interrupted);
    return submission_text(submission, json::array(), style);
  } catch (const InputError& error) {
    throw InputError(error.what(), fmt::format("submission {} is kept: :submit --wait waits for it again", id));
  }
}

FlowScript ReplServer::script(int64_t id) {
  const json submission = client().submission(id);
  return {fmt::format("submission:{}", id), JsonObject(submission, "the submission").text("script")};
}

}  // namespace sluice
