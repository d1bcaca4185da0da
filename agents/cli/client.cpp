#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/client/harness_client.h"
#include "agents/flow_script.h"
#include "agents/printable_text.h"
#include "scripting/graph/error.h"

// The commands that talk to a server. Other people's names and scripts are printed with control characters made visible.

namespace sluice::cli {
namespace {

using nlohmann::json;

struct ClientOptions {
  std::string server = "http://127.0.0.1:8080";
  std::string token;
  bool json_output = false;

  HarnessClient client() const {
    const char* given = std::getenv("SLUICE_TOKEN");
    return {server, !token.empty() ? token : (given != nullptr ? given : "")};
  }
};

struct SubmitOptions {
  ClientOptions client;
  std::string flow;
  std::string name;
  std::string notes;
  std::string suite;
  std::vector<int64_t> parents;
  int wait = 0;
};

std::string shown(const json& value) { return value.is_string() ? printable(value.get<std::string>()) : value.dump(); }

std::string number_text(const json& metric) {
  const auto part = [&](const char* name) { return metric[name].is_number() ? metric[name].get<double>() : 0.0; };
  if (!metric["low"].is_number()) return fmt::format("{:.3g}", part("value"));
  return fmt::format("{:.3g} [{:.3g}, {:.3g}]", part("value"), part("low"), part("high"));
}

void print_summary(const json& submission) {
  fmt::print("{:>6}  {:<20} {:<16} {:<24} {}\n", submission["id"].dump(), shown(submission["status"]), shown(submission["agent"]),
             shown(submission["name"]), shown(submission["created"]));
}

void print_evaluation(const json& evaluation) {
  if (!shown(evaluation["message"]).empty()) fmt::print("  {}\n", shown(evaluation["message"]));
  if (!evaluation.value("hint", std::string()).empty()) fmt::print("    hint: {}\n", shown(evaluation["hint"]));
  for (const json& stage : evaluation.value("stages", json::array())) {
    fmt::print("  stage {:<24} {}\n", shown(stage["stage"]), shown(stage["status"]));
  }
  for (const json& metric : evaluation.value("metrics", json::array())) {
    const std::string of = metric.contains("task") ? fmt::format(" {} {}", shown(metric["task"]), metric.value("tokens", 0)) : "";
    fmt::print("  {:<46} {}\n", shown(metric["name"]) + of, number_text(metric));
  }
}

void print_submission(const json& submission) {
  print_summary(submission);
  if (!shown(submission["notes"]).empty()) fmt::print("  {}\n", shown(submission["notes"]));
  if (submission.contains("evaluation") && submission["evaluation"].is_object()) print_evaluation(submission["evaluation"]);
}

void submit(const SubmitOptions& options) {
  const FlowScript script = read_flow(options.flow);
  json draft = {{"name", options.name.empty() ? std::filesystem::path(script.file).stem().string() : options.name},
                {"script", script.source},
                {"notes", options.notes},
                {"parents", options.parents}};
  if (!options.suite.empty()) draft["settings"] = {{"suite", options.suite}};
  HarnessClient client = options.client.client();
  json submission = client.submit(draft);
  if (options.wait > 0) submission = client.submission(submission["id"], options.wait);
  options.client.json_output ? fmt::print("{}\n", submission.dump(2)) : print_submission(submission);
}

/// Every node below its first parent, indented; other parents are named.
class Tree {
 public:
  explicit Tree(const json& nodes) {
    for (const json& node : nodes) nodes_[node["id"]] = node;
    for (const auto& [id, node] : nodes_) {
      const int64_t parent = first_parent(node);
      (parent != 0 ? children_[parent] : roots_).push_back(id);
    }
  }

  void print() const {
    for (const int64_t root : roots_) print(root, 0);
  }

 private:
  int64_t first_parent(const json& node) const {
    for (const json& parent : node["parents"]) {
      if (nodes_.contains(parent)) return parent;
    }
    return 0;
  }

  void print(int64_t id, int depth) const {
    const json& node = nodes_.at(id);
    fmt::print("{:{}}{} {} by {}: {}", "", 2 * depth, id, shown(node["name"]), shown(node["agent"]), shown(node["status"]));
    if (node["parents"].size() > 1) fmt::print(" (parents {})", node["parents"].dump());
    fmt::print("\n");
    const auto children = children_.find(id);
    if (children == children_.end()) return;
    for (const int64_t child : children->second) print(child, depth + 1);
  }

  std::map<int64_t, json> nodes_;
  std::map<int64_t, std::vector<int64_t>> children_;
  std::vector<int64_t> roots_;
};

void add_connection(CLI::App& command, ClientOptions& options) {
  command.add_option("--server", options.server, "Address of sluice serve --data")->capture_default_str();
  command.add_option("--token", options.token, "Of an agent (default: the environment variable SLUICE_TOKEN)");
  command.add_flag("--json", options.json_output, "Print what the server answers");
}

void add_submit(CLI::App& app) {
  constexpr int kDay = 86400;
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Hand in a flow to a server");
  command->add_option("flow", options->flow, "Lua file, - for standard input, or the name of a shipped flow")->required();
  command->add_option("--name", options->name, "What it is called (default: the file's name)");
  command->add_option("--notes", options->notes, "What is new about it");
  add_number_list(*command, "--parents", options->parents, int64_t{1}, int64_t{1} << 62, "Submissions that it comes from");
  command->add_option("--suite", options->suite, "verify, quick or full (default: the server's)");
  command->add_option("--wait", options->wait, "Seconds to wait for the verdict")->check(decimal_number(0, kDay));
  add_connection(*command, options->client);
  command->footer("Example: sluice submit mine.lua --parents 12 --wait 120");
  command->callback([options] { submit(*options); });
}

/// A command about one submission.
template <typename Show>
void add_about(CLI::App& app, const char* name, const char* about, const char* path, Show show) {
  struct Options {
    ClientOptions client;
    int64_t id = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(name, about);
  command->add_option("id", options->id, "The number of a submission")
      ->required()
      ->check(decimal_number(int64_t{1}, int64_t{1} << 62));
  add_connection(*command, options->client);
  command->footer(fmt::format("Example: sluice {} 12", name));
  command->callback([options, path, show] {
    const json answer = options->client.client().get(fmt::format("/v1/submissions/{}{}", options->id, path));
    options->client.json_output ? fmt::print("{}\n", answer.dump(2)) : show(answer);
  });
}

void add_list(CLI::App& app) {
  struct Options {
    ClientOptions client;
    int limit = 50;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("list", "Submissions of a server, the newest first");
  command->add_option("--limit", options->limit, "Most of them")->check(decimal_number(1, 200))->capture_default_str();
  add_connection(*command, options->client);
  command->footer("Example: sluice list --limit 10");
  command->callback([options] {
    const json answer = options->client.client().get(fmt::format("/v1/submissions?limit={}", options->limit));
    if (options->client.json_output) return fmt::print("{}\n", answer.dump(2));
    for (const json& submission : answer["submissions"]) print_summary(submission);
  });
}

}  // namespace

void add_client(CLI::App& app) {
  add_submit(app);
  add_list(app);
  add_about(app, "show", "One submission of a server, and what became of it", "", print_submission);
  add_about(app, "tree", "A submission's relatives, children below their parents", "/lineage",
            [](const json& answer) { Tree(answer["nodes"]).print(); });
  add_about(app, "export", "The script of a submission", "",
            [](const json& answer) { fmt::print("{}", answer["script"].get<std::string>()); });
}

}  // namespace sluice::cli
