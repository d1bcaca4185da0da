#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/harness/harness.h"
#include "scripting/graph/error.h"
#include "store/data_folder.h"
#include "store/error.h"

namespace sluice::cli {
namespace {

struct AgentOptions {
  std::string name;
  std::string folder = store::kDefaultDataFolder;
  bool admin = false;
  int64_t quota = 1000;
};

/// The store of a folder, whether a server uses it or not; made where there is none.
store::Store open_store(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(database_of(folder), error)) store::DataFolder{folder};
  return store::Store(database_of(folder));
}

template <typename Operation>
void with_store(const std::string& folder, const Operation& operation) {
  try {
    store::Store store = open_store(folder);
    operation(store);
  } catch (const store::StoreError& error) {
    if (error.kind() == store::ErrorKind::kInternal) throw InternalError(error.what());
    throw InputError(error.what(), error.hint());
  }
}

CLI::App* add_command(CLI::App& agent, const char* name, const char* about, AgentOptions& options) {
  CLI::App* command = agent.add_subcommand(name, about);
  command->add_option("name", options.name, "The agent")->required();
  command->add_option("--data", options.folder, "Data folder of sluice serve")->capture_default_str();
  command->footer(fmt::format("Example: sluice agent {} ada --data sluice-data", name));
  return command;
}

}  // namespace

void add_agent(CLI::App& app) {
  constexpr int64_t kMostQuota = 1'000'000'000;
  auto options = std::make_shared<AgentOptions>();
  CLI::App* agent = app.add_subcommand("agent", "Agents that may hand in flows, and their tokens");
  agent->require_subcommand(1);
  CLI::App* add = add_command(*agent, "add", "Make an agent, and print its token, which is nowhere to be found later", *options);
  add->add_flag("--admin", options->admin, "It may also cancel what others handed in");
  add->add_option("--quota", options->quota, "New submissions in any 24 hours")
      ->check(decimal_number(int64_t{0}, kMostQuota))
      ->capture_default_str();
  add->callback([options] {
    with_store(options->folder, [&](store::Store& store) {
      const store::Role role = options->admin ? store::Role::kAdmin : store::Role::kAgent;
      fmt::print("{}\n", store.create_agent(options->name, role, options->quota).token);
    });
  });
  CLI::App* token = add_command(*agent, "token", "Print a new token for an agent; the old one is of no use any more", *options);
  token->callback([options] {
    with_store(options->folder, [&](store::Store& store) { fmt::print("{}\n", store.replace_token(options->name)); });
  });
}

}  // namespace sluice::cli
