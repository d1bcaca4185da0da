#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/client_options.h"
#include "agents/cli/commands.h"
#include "agents/client/export.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/printable_text.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

constexpr int64_t kMostId = int64_t{1} << 62;

struct ExportOptions {
  ServerAccess access = ServerAccess::from_environment();
  std::vector<int64_t> ids;
  std::string folder;
  HarnessClient::Query filters;
};

/// Every submission that the filters let through, the newest first.
std::vector<int64_t> found(HarnessClient& client, HarnessClient::Query query) {
  std::vector<int64_t> ids;
  query["limit"] = "200";
  do {
    const json answer = client.get("/v1/submissions", query);
    const JsonObject page(answer, client.address());
    for (const json& submission : page.array("submissions")) {
      ids.push_back(JsonObject(submission, client.address()).integer("id", 1, kMostId));
    }
    query["cursor"] = page.text("next");
  } while (!query["cursor"].empty());
  return ids;
}

/// Byte by byte, unless it goes to a terminal, which a script by somebody else must not steer.
void print_script(const json& submission) {
  const std::string& script = JsonObject(submission, "the submission").text("script");
  fmt::print("{}", ::isatty(STDOUT_FILENO) == 1 ? printable(script) : script);
}

void export_submissions(const ExportOptions& options) {
  HarnessClient client(options.access);
  if (options.folder.empty()) {
    if (options.ids.size() != 1) {
      throw InputError("standard output takes the script of one submission", "sluice export 12, or --dir DIR for a folder each");
    }
    print_script(client.submission(options.ids.front()));
    return;
  }
  const std::vector<int64_t> ids = options.ids.empty() ? found(client, options.filters) : options.ids;
  for (const int64_t id : ids) {
    export_submission(client.submission(id), std::filesystem::path(options.folder) / std::to_string(id));
  }
  fmt::print("{} submission{} in {}\n", ids.size(), ids.size() == 1 ? "" : "s", printable(options.folder));
}

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "The script of a submission, or whole submissions as files");
  CLI::Option* ids =
      command->add_option("id", options->ids, "Numbers of submissions (default, with --dir: all that the filters let through)")
          ->check(decimal_number(int64_t{1}, kMostId));
  command->add_option("--dir", options->folder,
                      "Make DIR/ID of each, with the files of its commit and evaluation.json, instead of printing a script");
  for (CLI::Option* filter : add_filters(*command, options->filters)) filter->excludes(ids);
  add_access(*command, options->access);
  command->footer("Example: sluice export 12 > mine.lua; sluice export --dir flows --status passed");
  command->callback([options] { export_submissions(*options); });
}

}  // namespace sluice::cli
