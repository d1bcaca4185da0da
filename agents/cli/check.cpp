#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/flow_script.h"
#include "scripting/base/printable_text.h"
#include "scripting/graph/pattern_report.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/verify.h"
#include "scripting/passes/cache_limit.h"

namespace sluice::cli {

namespace {

struct CheckOptions {
  std::string flow;
  bool json = false;
  TraceOptions trace;
};

nlohmann::json diagnostic_of(const std::string& file, int line, const std::string& message, const std::string& hint) {
  nlohmann::json diagnostic = {{"file", file}, {"message", message}};
  if (line > 0) diagnostic["line"] = line;
  if (!hint.empty()) diagnostic["hint"] = hint;
  return diagnostic;
}

void print_json(bool ok, const nlohmann::json& diagnostics, const nlohmann::json& flow) {
  nlohmann::json report = {{"schema", "sluice.check/1"}, {"ok", ok}, {"diagnostics", diagnostics}};
  if (ok) report["flow"] = flow;
  // Scripts may hold any bytes; what is no UTF-8 is replaced.
  fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Exit code 1 without another message: the JSON has said it.
[[noreturn]] void end_with_diagnostics() { throw CLI::RuntimeError(1); }

constexpr int kTokens = 8192;  // that patterns are looked at for
constexpr int kLayers = 8;     // of the mini: those of other models are not asked for

/// What patterns of the flow's programs leave queries to see.
std::vector<PatternFigures> figures_of_patterns(const Plan& plan, const TraceOptions& trace) {
  std::vector<PatternFigures> all;
  for (const Plan* program : plan.programs()) {
    if (program->graph.patterns.empty()) continue;
    const int layers = trace.layers > 0 ? trace.layers : kLayers;
    std::vector<PatternFigures> figures =
        pattern_figures(program->graph, layers, std::max(1, trace.heads / trace.group), kTokens);
    std::erase_if(figures, [](const PatternFigures& each) { return each.role == PatternRole::kBeside; });
    all.insert(all.end(), figures.begin(), figures.end());
  }
  return all;
}

void check(const CheckOptions& options) {
  try {
    const Plan plan = compile(read_flow(options.flow).trace(options.trace)).plan;
    const FlowGraph& graph = plan.graph;
    size_t operators = 0;
    size_t fields = 0;
    size_t states = 0;
    size_t steps = 0;
    for (const Plan* program : plan.programs()) {
      check_cache_size(*program);
      operators += program->graph.nodes.size();
      fields += program->graph.fields.size();
      states += program->graph.states.size();
      steps += program->index.size() + program->after.size();
    }
    const std::vector<PatternFigures> figures = figures_of_patterns(plan, options.trace);
    if (options.json) {
      nlohmann::json patterns = nlohmann::json::array();
      for (const PatternFigures& each : figures) {
        const nlohmann::json blind = each.blind < 0 ? nlohmann::json() : nlohmann::json(each.blind);
        patterns.push_back({{"text", each.text}, {"tokens", kTokens}, {"blind", blind}});
      }
      print_json(true, nlohmann::json::array(),
                 {{"name", graph.name},
                  {"page", graph.geometry.page},
                  {"kv", name_of(graph.geometry.kv)},
                  {"programs", plan.variants.size() + 1},
                  {"operators", operators},
                  {"fields", fields},
                  {"states", states},
                  {"steps", steps},
                  {"recompute", graph.recompute != nullptr},
                  {"takes_copies", plan.takes_copies()},
                  {"patterns", std::move(patterns)},
                  {"page_bytes", plan.layout.bytes}});
      return;
    }
    fmt::print("{}: ok, flow \"{}\",{} pages of {} tokens, {} operators in {} steps, {} fields, {} states{}\n",
               printable(options.flow), printable(graph.name),
               plan.variants.empty() ? "" : fmt::format(" {} programs,", plan.variants.size() + 1), graph.geometry.page,
               operators, steps, fields, states,
               graph.recompute == nullptr
                   ? ""
                   : fmt::format(", a rule for copied text of {} operators", graph.recompute->graph.nodes.size()));
    if (graph.recompute != nullptr && !plan.takes_copies())
      fmt::print(
          "  its rule is never asked: prompts under patterns, evictions, variants or masses of prompts are all computed\n");
    for (const PatternFigures& each : figures) {
      if (each.blind > 0)
        fmt::print("  {} of {} queries under {} {} nothing, and {}\n", each.blind, kTokens, printable(each.text),
                   each.blind == 1 ? "sees" : "see", each.blind == 1 ? "gives zeros" : "give zeros");
    }
  } catch (const FlowError& error) {
    if (!options.json) throw;
    print_json(false,
               nlohmann::json::array({diagnostic_of(error.where().file, error.where().line, error.message(), error.hint())}), {});
    end_with_diagnostics();
  } catch (const InputError& error) {
    if (!options.json) throw;
    print_json(false, nlohmann::json::array({diagnostic_of(options.flow, 0, error.what(), error.hint())}), {});
    end_with_diagnostics();
  }
}

}  // namespace

void add_check(CLI::App& app) {
  constexpr int kHeadsOfMini = 8;
  auto options = std::make_shared<CheckOptions>();
  options->trace.heads = kHeadsOfMini;
  CLI::App* command = app.add_subcommand("check", "Trace and verify a flow: exit code 0, or 1 with what is wrong and where");
  command->footer("Example: sluice check scripting/flows/quest.lua --json");
  command->add_option("flow", options->flow, "Lua file, - for standard input, or the name of a shipped flow")->required();
  command->add_flag("--json", options->json,
                    "Print {\"schema\": \"sluice.check/1\", ok, diagnostics: [{file, line, message, hint}]}");
  command->add_option("--head-dim", options->trace.head_dim, "Channels of a head")
      ->check(decimal_number(1, GraphLimits::kHeadDim))
      ->capture_default_str();
  command->add_option("--group", options->trace.group, "Query heads that share a KV head")
      ->check(decimal_number(1, GraphLimits::kGroup))
      ->capture_default_str();
  command->add_option("--heads", options->trace.heads, "Query heads of the model, which flow.recompute sees")
      ->check(decimal_number(1, 1024))
      ->capture_default_str();
  command->callback([options] { check(*options); });
}

}  // namespace sluice::cli
