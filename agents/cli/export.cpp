#include <fmt/format.h>

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
#include "scripting/graph/error.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

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
    const json page = client.get("/v1/submissions", query);
    for (const json& submission : page.at("submissions")) ids.push_back(submission.at("id"));
    query["cursor"] = page.at("next");
  } while (!query["cursor"].empty());
  return ids;
}

void export_submissions(const ExportOptions& options) {
  HarnessClient client(options.access);
  if (options.folder.empty()) {
    if (options.ids.size() != 1) {
      throw InputError("standard output takes the script of one submission", "sluice export 12, or --dir DIR for a folder each");
    }
    fmt::print("{}", client.submission(options.ids.front()).at("script").get<std::string>());
    return;
  }
  const std::vector<int64_t> ids = options.ids.empty() ? found(client, options.filters) : options.ids;
  for (const int64_t id : ids) {
    export_submission(client.submission(id), std::filesystem::path(options.folder) / std::to_string(id));
  }
  fmt::print("{} submissions in {}\n", ids.size(), options.folder);
}

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "The script of a submission, or whole submissions as files");
  command->add_option("id", options->ids, "Numbers of submissions (default, with --dir: all that the filters let through)")
      ->check(decimal_number(int64_t{1}, int64_t{1} << 62));
  command->add_option("--dir", options->folder,
                      "Make DIR/ID of each, with the files of its commit and evaluation.json, instead of printing a script");
  add_filters(*command, options->filters);
  add_access(*command, options->access);
  command->footer("Example: sluice export 12 > mine.lua; sluice export --dir flows --status passed");
  command->callback([options] { export_submissions(*options); });
}

}  // namespace sluice::cli
