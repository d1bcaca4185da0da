#include "agents/cli/client_options.h"

#include <fmt/format.h>

#include <clocale>
#include <utility>

#include "agents/cli/arguments.h"
#include "agents/cli/terminal.h"
#include "agents/client/metric_text.h"
#include "agents/client/submission_text.h"
#include "scripting/base/json_object.h"

namespace sluice::cli {

using nlohmann::json;

void add_access(CLI::App& command, ServerAccess& access) {
  command.add_option("--server", access.address, "Address of sluice serve --data (or the variable SLUICE_SERVER)")
      ->capture_default_str();
  command.add_option("--token", access.token, "Of an agent (or, hidden from other users, the variable SLUICE_TOKEN)");
}

void add_connection(CLI::App& command, ClientOptions& options) {
  add_access(command, options.access);
  command.add_flag("--json", options.json_output, "Print what the server answers");
}

void add_submission_id(CLI::App& command, int64_t& id) {
  command.add_option("id", id, "The number of a submission")->required()->check(decimal_number(int64_t{1}, int64_t{1} << 62));
}

void add_wait(CLI::App& command, int& seconds) {
  // It takes most of what follows it for its value, a flow's name too.
  const auto check = [](const std::string& text) -> std::string {
    int value = 0;
    const std::string refused = parse_decimal(text, 0, kDay, value);
    return refused.empty() ? refused : refused + "; --wait alone stands after the flow or number, --wait=SECONDS anywhere";
  };
  command.add_option("--wait", seconds, "Wait for the verdict, so many seconds if a number follows")
      ->expected(0, 1)
      ->default_str(std::to_string(kDay))
      ->option_text("[SECONDS]")
      ->check(check, fmt::format("0 to {}", kDay));
}

std::vector<CLI::Option*> add_filters(CLI::App& command, HarnessClient::Query& query) {
  constexpr std::pair<const char*, const char*> kFilters[] = {
      {"agent", "Handed in by this agent"},         {"status", "With this status: passed, below_threshold, ..."},
      {"model", "With this model in the settings"}, {"device", "With this device in the settings"},
      {"suite", "With this suite in the settings"}, {"text", "With this in name, notes or script"}};
  std::vector<CLI::Option*> options;
  for (const auto& [name, about] : kFilters) {
    options.push_back(command.add_option(fmt::format("--{}", name), query[name], about));
  }
  return options;
}

void check_judged(const json& submission) {
  const std::string status = submission.at("status");
  if (status != "passed" && status != "below_threshold") throw CLI::RuntimeError(1);
}

std::string shown_submission(HarnessClient& client, const json& submission) {
  std::setlocale(LC_CTYPE, "");
  json attempts = json::array();
  if (member_of(member_of(submission, "evaluation"), "attempt") > 1) {  // there were others
    const json answer = client.get(fmt::format("/v1/submissions/{}/evaluations", submission.at("id").get<int64_t>()));
    attempts = JsonObject(answer, client.address()).array("evaluations");
  }
  return submission_text(submission, attempts, terminal_style());
}

}  // namespace sluice::cli
