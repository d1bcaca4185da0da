#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "agents/cli/arguments.h"
#include "agents/cli/client_options.h"
#include "agents/cli/commands.h"
#include "agents/cli/terminal.h"
#include "agents/client/diff_text.h"
#include "agents/client/final_text.h"
#include "agents/client/lineage_tree.h"
#include "agents/client/metric_text.h"
#include "agents/client/submission_text.h"
#include "agents/client/verdict_wait.h"
#include "agents/evaluation/metric_table.h"
#include "scripting/base/json_object.h"

// The commands that read what a server knows.

namespace sluice::cli {
namespace {

using nlohmann::json;

struct ReadOptions {
  ClientOptions client;
  HarnessClient::Query query;
  int limit = 50;
  int wait = -1;  // seconds; negative: it was not asked for
  int64_t id = 0;
  int64_t other = 0;

  std::string path(const std::string& rest = {}) const { return fmt::format("/v1/submissions/{}{}", id, rest); }
};

/// The list that an answer is about.
const json& entries_of(const json& answer, const char* name) { return JsonObject(answer, "the answer").array(name); }

/// As many as are wanted, a page of the server's at a time.
void list(ReadOptions options) {
  constexpr int kPage = 200;
  HarnessClient client = options.client.client();
  json found = json::array();
  json answer;
  std::optional<int64_t> total;
  do {
    options.query["limit"] = std::to_string(std::min(kPage, options.limit - static_cast<int>(found.size())));
    answer = client.get("/v1/submissions", options.query);
    for (const json& each : entries_of(answer, "submissions")) found.push_back(each);
    if (!total) total = JsonObject(answer, "the answer").find_integer("total", 0, std::numeric_limits<int64_t>::max());
    options.query["cursor"] = JsonObject(answer, "the answer").text("next");
  } while (!options.query["cursor"].empty() && static_cast<int>(found.size()) < options.limit);
  const std::string more = options.query["cursor"].empty() ? std::string()
                           : total                         ? fmt::format("{} of {}: --limit shows more\n", found.size(), *total)
                                                           : "there are more: --limit shows them\n";
  answer["submissions"] = std::move(found);
  if (total) answer["total"] = *total;
  options.client.print(answer, [&] { return submission_table(answer["submissions"]) + more; });
}

void add_list(CLI::App& app) {
  auto options = std::make_shared<ReadOptions>();
  CLI::App* command = app.add_subcommand("list", "Submissions of a server, the newest first");
  add_filters(*command, options->query);
  command->add_flag_callback(
      "--finals", [options] { options->query["finals"] = "shown"; },
      "With those that the server made for its final model, which --model alone shows otherwise");
  command->add_option("--limit", options->limit, "Most of them")->check(decimal_number(1, 1'000'000))->capture_default_str();
  add_connection(*command, options->client);
  command->footer("Example: sluice list --agent ada --status passed --limit 10");
  command->callback([options] { list(*options); });
}

/// What is said below a board of scores of where two models disagree, if any of its flows has a final.
std::string disagreements(const ReadOptions& options, const JsonObject& board) {
  const auto is_set = [&](const char* name) {
    const auto found = options.query.find(name);
    return found != options.query.end() && !found->second.empty();
  };
  const json& entries = board.array("entries");
  const bool has_finals = std::any_of(entries.begin(), entries.end(), [](const json& entry) {
    return member_of(member_of(entry, "submission"), "final").is_object();
  });
  const bool goes_by_them =
      options.query.at("metric") == metrics::kScore.name && !is_set("task") && !is_set("tokens") && !is_set("model");
  if (!has_finals || !goes_by_them) return {};
  HarnessClient::Query query;
  for (const char* name : {"agent", "device", "suite", "text"}) {
    if (is_set(name)) query[name] = options.query.at(name);
  }
  try {
    return disagreement_text(options.client.client().get("/v1/finals", query));
  } catch (const InputError& error) {  // the board is there all the same
    return fmt::format("\nwhere the models disagree cannot be told: {}\n", error.what());
  }
}

void leaderboard(ReadOptions options) {
  options.query["limit"] = std::to_string(options.limit);
  if (options.query["metric"].empty()) {
    options.query["metric"] = metrics::usual(options.query["task"].empty() && options.query["tokens"].empty());
  }
  if (options.query["order"].empty() && !metrics::is_better_high(options.query["metric"])) options.query["order"] = "ascending";
  const json answer = options.client.client().get("/v1/leaderboard", options.query);
  const JsonObject board(answer, "the answer");
  const int64_t total = board.find_integer("total", 0, std::numeric_limits<int64_t>::max()).value_or(0);
  const auto shown = static_cast<int64_t>(board.array("entries").size());
  const std::string more = total > shown ? fmt::format("{} of {}: --limit shows more\n", shown, total) : std::string();
  const bool names_half = options.query["task"].empty() != options.query["tokens"].empty();
  const std::string hint = total == 0 && names_half ? "metrics are of a task at a length: name both --task and --tokens\n" : "";
  options.client.print(answer, [&] {
    return leaderboard_table(board.array("entries"), options.query.at("metric")) + hint + more + disagreements(options, board);
  });
}

void add_leaderboard(CLI::App& app) {
  auto options = std::make_shared<ReadOptions>();
  HarnessClient::Query& query = options->query;
  CLI::App* command = app.add_subcommand("leaderboard", "Submissions of a server that passed, by a metric");
  command->add_option(
      "--by", query["metric"],
      fmt::format("{} (default: {}, of a task {})", metrics::compared(), metrics::usual(true), metrics::usual(false)));
  command->add_option("--task", query["task"], "Of the metric, at the length that --tokens names (default: of all together)");
  command->add_option("--tokens", query["tokens"], "Length of the task's prompts");
  command
      ->add_option("--order", query["order"],
                   fmt::format("descending or ascending (default: the best first, for {} the fewest)", metrics::better_low()))
      ->check(CLI::IsMember({"descending", "ascending"}));
  add_filters(*command, query);
  command->add_option("--limit", options->limit, "Most of them")->check(decimal_number(1, 1000))->capture_default_str();
  add_connection(*command, options->client);
  command->footer("Example: sluice leaderboard --by speedup --suite full");
  command->callback([options] { leaderboard(*options); });
}

void show(const ReadOptions& options) {
  HarnessClient client = options.client.client();
  const json submission = wait_on_terminal(client, options.id, std::chrono::seconds(std::max(options.wait, 0)));
  options.client.print(submission, [&] { return shown_submission(client, submission); });
  if (options.wait >= 0) check_judged(submission);
}

CLI::App* add_about(CLI::App& app, const char* name, const char* about, ReadOptions& options) {
  CLI::App* command = app.add_subcommand(name, about);
  add_submission_id(*command, options.id);
  add_connection(*command, options.client);
  command->footer(fmt::format("Example: sluice {} 12", name));
  return command;
}

void add_show(CLI::App& app) {
  auto options = std::make_shared<ReadOptions>();
  CLI::App* command = add_about(app, "show", "One submission of a server, and what became of it", *options);
  add_wait(*command, options->wait);
  command->footer(
      "With --wait it exits with 1 unless the flow was judged to the end (passed, below_threshold).\n"
      "Example: sluice show 12 --wait");
  command->callback([options] { show(*options); });
}

/// All of them, a page of the server's at a time.
void tree(ReadOptions options) {
  HarnessClient client = options.client.client();
  std::map<json, json> nodes;  // by id: what is handed in meanwhile may push one onto the next page, too
  json answer;
  do {
    answer = client.get(options.path("/lineage"), options.query);
    for (const json& node : entries_of(answer, "nodes")) nodes[member_of(node, "id")] = node;
    options.query["cursor"] = JsonObject(answer, "the answer").text("next");
  } while (!options.query["cursor"].empty());
  json all = json::array();
  for (auto& [id, node] : nodes) all.push_back(std::move(node));
  answer["nodes"] = std::move(all);
  options.client.print(answer, [&] { return lineage_tree(answer["nodes"]); });
}

void add_tree(CLI::App& app) {
  auto options = std::make_shared<ReadOptions>();
  CLI::App* command = add_about(app, "tree", "A submission's relatives, children below their parents", *options);
  command->callback([options] { tree(*options); });
}

void diff(ReadOptions options) {
  if (options.other > 0) options.query["from"] = std::to_string(std::exchange(options.id, options.other));
  const json answer = options.client.client().get(options.path("/diff"), options.query);
  options.client.print(answer, [&] { return diff_text(answer, terminal_style().color); });
}

void add_diff(CLI::App& app) {
  auto options = std::make_shared<ReadOptions>();
  CLI::App* command = add_about(
      app, "diff", "What changed from one submission to another, or from its first parent to one: script and metrics", *options);
  command->add_option("other", options->other, "The later one of two")->check(decimal_number(int64_t{1}, int64_t{1} << 62));
  command->footer("Example: sluice diff 9 12");
  command->callback([options] { diff(*options); });
}

}  // namespace

void add_submissions(CLI::App& app) {
  add_list(app);
  add_leaderboard(app);
  add_show(app);
  add_tree(app);
  add_diff(app);
}

}  // namespace sluice::cli
