#include "agents/client/repl_server.h"

#include <fmt/format.h>

#include <string>

#include "agents/client/submission_text.h"
#include "agents/client/verdict_wait.h"

namespace sluice {

using nlohmann::json;

repl::FlowServer::Receipt ReplServer::submit(const std::string& name, const std::string& script,
                                             const std::vector<int64_t>& parents) {
  const json submission = client_.submit({{"name", name}, {"script", script}, {"parents", parents}});
  const int64_t id = submission.at("id");
  const bool is_new = submission.value("is_new", true);
  return {id, fmt::format("{}  {}/v1/submissions/{}{}\n", submission_line(submission), client_.address(), id,
                          is_new ? "" : "\n  the same flow was there already")};
}

std::string ReplServer::wait(int64_t id, const repl::Style& style, const std::function<bool()>& interrupted) {
  const json submission = wait_on_terminal(client_, id, std::chrono::hours(24), interrupted);
  return submission_text(submission, json::array(), style);
}

FlowScript ReplServer::script(int64_t id) {
  return {fmt::format("submission:{}", id), client_.submission(id).at("script").get<std::string>()};
}

}  // namespace sluice
