#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/client_options.h"
#include "agents/cli/commands.h"
#include "agents/client/confirmation_text.h"
#include "agents/client/metric_text.h"
#include "agents/client/submission_text.h"
#include "agents/client/verdict_wait.h"
#include "agents/evaluation/flow_script.h"
#include "scripting/base/error.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

struct SubmitOptions {
  ClientOptions client;
  std::string flow;
  std::string name;
  std::string notes;
  std::string suite;
  std::vector<int64_t> parents;
  int wait = -1;  // seconds; negative: it was not asked for
};

json draft_of(const SubmitOptions& options) {
  const FlowScript script = read_flow_as_written(options.flow);
  json draft = {{"name", options.name.empty() ? std::filesystem::path(script.file).stem().string() : options.name},
                {"script", script.source},
                {"notes", options.notes},
                {"parents", options.parents}};
  if (!options.suite.empty()) draft["settings"] = {{"suite", options.suite}};
  return draft;
}

struct ConfirmOptions {
  ClientOptions client;
  int64_t id = 0;
  int wait = kDay;  // seconds
};

void confirm(const ConfirmOptions& options) {
  HarnessClient client = options.client.client();
  json submission = client.confirm(options.id);
  if (options.wait > 0) {
    submission = wait_on_terminal(client, options.id, std::chrono::seconds(options.wait), {}, WaitedFor::kConfirmation);
  }
  options.client.print(submission, [&] { return submission_line(submission) + confirmation_text(submission); });
  const json& confirmation = member_of(submission, "confirmation");
  if (options.wait > 0 && member_of(confirmation, "state") != "done") throw CLI::RuntimeError(1);
}

void submit(const SubmitOptions& options) {
  HarnessClient client = options.client.client();
  json submission = client.submit(draft_of(options));
  const std::string note = repetition_note(submission);
  if (options.wait < 0) return options.client.print(submission, [&] { return submission_line(submission) + note; });
  const int64_t id = submission.at("id");
  try {
    submission = wait_on_terminal(client, id, std::chrono::seconds(options.wait));
  } catch (const InputError& error) {
    throw InputError(error.what(), fmt::format("submission {} is kept: sluice show {} --wait", id, id));
  }
  options.client.print(submission, [&] { return note + shown_submission(client, submission); });
  check_judged(submission);
}

}  // namespace

void add_submit(CLI::App& app) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Hand in a flow to a server");
  command->add_option("flow", options->flow, "Lua file, - for standard input, or the name of a shipped flow")->required();
  command->add_option("--name", options->name, "What it is called (default: the file's name)");
  command->add_option("--notes", options->notes, "What is new about it");
  add_number_list(*command, "--parents", options->parents, int64_t{1}, int64_t{1} << 62, "Submissions that it comes from");
  command->add_option("--suite", options->suite, "verify, quick, standard, full, real or reuse (default: the server's)");
  add_wait(*command, options->wait);
  add_connection(*command, options->client);
  command->footer(
      "With --wait it exits with 1 unless the flow was judged to the end (passed, below_threshold).\n"
      "Example: sluice submit mine.lua --parents 12 --wait");
  command->callback([options] { submit(*options); });
}

void add_cancel(CLI::App& app) {
  struct Options {
    ClientOptions client;
    int64_t id = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("cancel", "End a submission of a server that waits or runs");
  add_submission_id(*command, options->id);
  add_connection(*command, options->client);
  command->footer("Example: sluice cancel 12");
  command->callback([options] {
    const json submission = options->client.client().cancel(options->id);
    options->client.print(submission, [&] { return submission_line(submission); });
  });
}

void add_confirm(CLI::App& app) {
  auto options = std::make_shared<ConfirmOptions>();
  CLI::App* command =
      app.add_subcommand("confirm", "Have a submission that passed judged once more, on questions that nobody knows");
  add_submission_id(*command, options->id);
  add_wait(*command, options->wait);
  add_connection(*command, options->client);
  command->footer(
      "It waits for the end unless --wait=SECONDS says otherwise, and exits with 1 unless there is a verdict then.\n"
      "Example: sluice confirm 12");
  command->callback([options] { confirm(*options); });
}

}  // namespace sluice::cli
