#include <fmt/format.h>

#include <memory>
#include <string>

#include "agents/cli/commands.h"
#include "agents/harness/harness.h"
#include "scripting/base/error.h"
#include "scripting/base/printable_text.h"
#include "store/error.h"
#include "store/folder/data_folder.h"

namespace sluice::cli {

namespace {

store::FsckReport checked(const std::string& folder) {
  try {
    return store::fsck(folder);
  } catch (const store::StoreError& error) {
    if (error.kind() == store::ErrorKind::kInternal) throw InternalError(error.what());
    throw InputError(error.what(), error.hint());
  }
}

void check(const std::string& folder) {
  store::FsckReport report = checked(folder);
  try {
    if (!find_seed(folder) && report.evaluations > 0) {
      report.problems.emplace_back("the seed is missing: verdicts of a new one are not comparable with those that there are");
    }
  } catch (const InputError& error) {
    report.problems.push_back(fmt::format("{}; {}", error.what(), error.hint()));
  }
  fmt::print("{}: {} agents, {} submissions, {} evaluations, {} commits\n", printable(folder), report.agents, report.submissions,
             report.evaluations, report.commits);
  for (const std::string& problem : report.problems) fmt::print("  {}\n", printable(problem));
  if (report.clean()) {
    fmt::print("clean: the database is whole, and Git agrees with it\n");
    return;
  }
  throw InputError(fmt::format("{} problem{} in {}", report.problems.size(), report.problems.size() == 1 ? "" : "s", folder),
                   "sluice serve makes lineage.git anew from the database; what is wrong in the database needs a backup");
}

}  // namespace

void add_fsck(CLI::App& app) {
  auto folder = std::make_shared<std::string>(store::kDefaultDataFolder);
  CLI::App* command = app.add_subcommand("fsck", "Check the data of a server that is not running: database, and Git against it");
  command->footer("Example: sluice fsck --data sluice-data");
  command->add_option("--data", *folder, "Data folder of sluice serve")->capture_default_str();
  command->callback([folder] { check(*folder); });
}

}  // namespace sluice::cli
