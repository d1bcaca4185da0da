#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/harness/documents.h"
#include "agents/harness/submission_draft.h"
#include "scripting/base/error.h"
#include "scripting/base/iso_time.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/text_table.h"
#include "store/error.h"
#include "store/folder/data_folder.h"

namespace sluice::cli {
namespace {

struct AgentOptions {
  std::string name;
  std::string folder = store::kDefaultDataFolder;
  bool admin = false;
  int64_t quota = kUsualQuota;
};

store::Store open_folder(const std::string& folder, bool makes) {
  try {
    return store::open_store_of(folder, makes);
  } catch (const store::StoreError& problem) {
    if (problem.kind() != store::ErrorKind::kNotFound) throw;
    throw InputError(fmt::format("there are no agents in {}", folder), "sluice agent add NAME --data FOLDER makes one");
  }
}

/// Works on the store of a folder, whether a server uses it or not. `makes`: where there is none, it is made.
template <typename Operation>
void with_store(const std::string& folder, bool makes, const Operation& operation) {
  try {
    store::Store store = open_folder(folder, makes);
    operation(store);
  } catch (const store::StoreError& problem) {
    if (problem.kind() == store::ErrorKind::kInternal) throw InternalError(problem.what());
    throw InputError(problem.what(), problem.hint());
  }
}

/// Agents by name: what they may, since when, what they have handed in and how much of that passed.
void print_agents(store::Store& store) {
  std::vector<TableRow> rows{{"name", "role", "since", "submissions", "passed"}};
  for (const store::AgentSummary& agent : store.agents()) {
    rows.push_back({agent.name, name_of(agent.role), iso_day(agent.created), std::to_string(agent.submissions),
                    std::to_string(agent.passed)});
  }
  fmt::print("{}", printable(aligned_table(rows)));
}

void add_folder(CLI::App& command, AgentOptions& options) {
  command.add_option("--data", options.folder, "Data folder of sluice serve")->capture_default_str();
}

CLI::App* add_command(CLI::App& agent, const char* name, const char* about, AgentOptions& options) {
  CLI::App* command = agent.add_subcommand(name, about);
  command->add_option("name", options.name, "The agent")->required();
  add_folder(*command, options);
  command->footer(fmt::format("Example: sluice agent {} ada --data sluice-data", name));
  return command;
}

}  // namespace

void add_agent(CLI::App& app) {
  auto options = std::make_shared<AgentOptions>();
  CLI::App* agent = app.add_subcommand("agent", "Agents that may hand in flows, and their tokens");
  agent->require_subcommand(1);
  agent->footer("Example: sluice agent add ada --data sluice-data");
  CLI::App* add = add_command(*agent, "add", "Make an agent, and print its token, which is nowhere to be found later", *options);
  add->add_flag(
      "--admin", options->admin,
      "It makes agents, replaces any agent's token, sets quotas, cancels what others handed in and has it judged again; "
      "no quota holds for itself");
  add->add_option("--quota", options->quota, "New submissions in any 24 hours")
      ->check(decimal_number(int64_t{0}, kMostQuota))
      ->capture_default_str();
  add->callback([options] {
    with_store(options->folder, true, [&](store::Store& store) {
      const store::Role role = options->admin ? store::Role::kAdmin : store::Role::kAgent;
      fmt::print("{}\n", store.create_agent(options->name, role, options->quota).token);
    });
  });
  CLI::App* token = add_command(*agent, "token", "Print a new token for an agent; the old one is of no use any more", *options);
  token->callback([options] {
    with_store(options->folder, false, [&](store::Store& store) { fmt::print("{}\n", store.replace_token(options->name)); });
  });
  CLI::App* list = agent->add_subcommand("list", "Show the agents, without their tokens");
  add_folder(*list, *options);
  list->footer("Example: sluice agent list --data sluice-data");
  list->callback([options] { with_store(options->folder, false, print_agents); });
}

}  // namespace sluice::cli
