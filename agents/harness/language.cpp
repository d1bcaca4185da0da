#include "agents/harness/language.h"

#include <fmt/format.h>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/suite.h"
#include "agents/harness/embedded_guide.h"
#include "scripting/repl/reference.h"

namespace sluice {
namespace {

using nlohmann::json;

/// The comment that a script begins with, its first line.
std::string title_of(const std::string& script) {
  const std::string line = script.substr(0, script.find('\n'));
  const size_t start = line.find_first_not_of("- ");
  return line.starts_with("--") && start != std::string::npos ? line.substr(start) : std::string();
}

json document_of(const SuiteStage& stage) {
  json tasks = json::array();
  for (const SuiteTask& task : stage.tasks) {
    tasks.push_back({{"task", task.task}, {"tokens", task.tokens}, {"samples", task.samples}});
  }
  return {{"name", stage.name}, {"threshold", stage.threshold}, {"tasks", std::move(tasks)}};
}

std::string operators_text() {
  std::string text = "| call | stage | shape | meaning |\n|---|---|---|---|\n";
  for (const repl::OperatorReference& reference : repl::operator_references()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", reference.signature, reference.stage,
                        reference.shape.empty() ? "" : "`" + reference.shape + "`", reference.summary);
  }
  return text;
}

/// Those that the model can be asked, with what it is asked of them.
std::vector<Suite> suites_of(bool is_mini) {
  std::vector<Suite> suites;
  for (const std::string& name : built_in_suites()) {
    if (is_mini && name == kEnglishSuite) continue;
    suites.push_back(load_suite(name));
    if (is_mini) leave_to_mini(suites.back());
  }
  return suites;
}

std::string suites_text(const std::string& usual, bool is_mini) {
  std::string text;
  for (const Suite& suite : suites_of(is_mini)) {
    text += fmt::format("- `{}`{}:", suite.name, suite.name == usual ? " (where you name none)" : "");
    if (suite.stages.empty()) text += " asks nothing; a flow passes that compiles and agrees with the float64 reference";
    if (suite.reuse) text += " for flows with `flow.recompute`, where a CPU judges: documents are copied;";
    for (const SuiteStage& stage : suite.stages) {
      text += fmt::format(" stage *{}*,", stage.name);
      if (stage.threshold > 0) text += fmt::format(" at least {:.0f} % of dense accuracy,", 100 * stage.threshold);
      text += fmt::format(" {} task{};", stage.tasks.size(), stage.tasks.size() == 1 ? "" : "s");
    }
    if (text.ends_with(';')) text.pop_back();
    text += ".\n";
  }
  return text;
}

void replace(std::string& text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), by);
}

}  // namespace

json operators_document() {
  json operators = json::array();
  for (const repl::OperatorReference& reference : repl::operator_references()) {
    operators.push_back({{"name", reference.name},
                         {"signature", reference.signature},
                         {"stage", reference.stage},
                         {"shape", reference.shape},
                         {"summary", reference.summary}});
  }
  return {{"operators", std::move(operators)}};
}

json flows_document() {
  json flows = json::array();
  for (const std::string& name : shipped_flows()) {
    const std::string script = read_flow(name).source;
    flows.push_back({{"name", name}, {"title", title_of(script)}, {"script", script}});
  }
  return {{"flows", std::move(flows)}};
}

json suites_document(const std::string& usual, bool is_mini) {
  json suites = json::array();
  for (const Suite& suite : suites_of(is_mini)) {
    json stages = json::array();
    for (const SuiteStage& stage : suite.stages) stages.push_back(document_of(stage));
    suites.push_back({{"name", suite.name}, {"default", suite.name == usual}, {"stages", std::move(stages)}});
  }
  return {{"suites", std::move(suites)}};
}

std::string guide_text(const std::string& usual_suite, bool is_mini) {
  std::string text = kGuide;
  replace(text, "{{operators}}", operators_text());
  replace(text, "{{suites}}", suites_text(usual_suite, is_mini));
  return text;
}

}  // namespace sluice
