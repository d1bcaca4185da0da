#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "agents/evaluation/flow_script.h"
#include "agents/repl/session.h"
#include "agents/repl/timing.h"
#include "kernels/device/plan_report.h"
#include "scripting/base/error.h"
#include "scripting/base/output_file.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/suggest.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/text.h"
#include "scripting/repl/reference.h"
#include "scripting/repl/subgraph.h"

namespace sluice::repl {

struct Session::Command {
  const char* name;
  const char* argument;  // as help shows it; empty: it takes none
  const char* about;
  std::string (Session::*run)(const std::string& argument);
};

namespace {

constexpr double kMicroseconds = 1e6;

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

int whole_number(const std::string& text) {
  int number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return number;
  throw InputError(fmt::format("\"{:.40}\" is no whole number", text));
}

/// [page B] with the number of pages.
std::string shape_text(Shape shape, int pages) {
  for (Dimension& dimension : shape) {
    if (dimension.axis == Axis::kPage) dimension.extent = pages;
  }
  return to_string(shape);
}

}  // namespace

const std::vector<Session::Command>& Session::commands() {
  static const std::vector<Command> all = {
      {":help", "[OPERATOR]", "this list, or what an operator takes and gives", &Session::help},
      {":layer", "N", "look at another layer", &Session::set_layer},
      {":head", "N", "look at another KV head", &Session::set_head},
      {":step", "", "decode one more token", &Session::decode_step},
      {":prompt", "TEXT", "another request", &Session::set_prompt},
      {":page", "N", "tokens a page of the flow: 8, 16, 32, 64 or 128", &Session::set_page},
      {":shape", "EXPRESSION", "its axes, without computing it", &Session::shape},
      {":graph", "EXPRESSION", "the operators that compute it", &Session::graph},
      {":flow", "", "the flow so far, as a script", &Session::show_flow},
      {":plan", "", "what it is compiled to and should cost, as sluice plan", &Session::plan},
      {":mass", "", "share of the dense attention mass that it covers, by layer", &Session::mass},
      {":time", "", "its index stage beside dense attention, here on this device", &Session::time},
      {":load", "FLOW", "a file, a shipped flow or (12, submission:12) a submission instead", &Session::load},
      {":save", "FILE", "write the flow", &Session::save},
      {":submit", "[--wait] [NAME]", "hand in the flow to the server, as a child of the submission before", &Session::submit},
      {":reset", "", "an empty flow", &Session::reset},
      {":quit", "", "end the session, as does the end of the input", &Session::quit},
  };
  return all;
}

std::vector<std::string> Session::command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

std::string Session::run_command(const std::string& line) {
  const std::string_view text = trimmed(line);
  const std::string name(text.substr(0, text.find_first_of(" \t\r\n")));
  const std::string argument(trimmed(text.substr(name.size())));
  for (const Command& command : commands()) {
    if (name != command.name) continue;
    const std::string_view takes = command.argument;
    if (takes.empty() && !argument.empty()) throw InputError(fmt::format("{} takes nothing", name));
    if (!takes.empty() && takes.front() != '[' && argument.empty()) {
      throw InputError(fmt::format("{} wants {}", name, takes), fmt::format("{} {}", name, takes));
    }
    return (this->*command.run)(argument);
  }
  throw InputError(fmt::format("there is no command {:.40}", name), did_you_mean(name, command_names()));
}

std::string Session::help(const std::string& argument) {
  if (!argument.empty()) return operator_help(argument);
  std::string text =
      "Lua as in a flow: q and c are there, s = q:dot(c.k:mean(\"token\")):max(\"head\") keeps a name, an expression shows its\n"
      "value, c.NAME = x adds a field (once a page, no query), return SELECTION ends the flow. Values are computed in float64.\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<20} {}\n", fmt::format("{} {}", command.name, command.argument), command.about);
  }
  return text + operator_list();
}

std::string Session::set_layer(const std::string& argument) {
  const int layer = whole_number(argument);
  check_number(layer, model_.config().layers, "layer");
  options_.place.layer = layer;
  return status();
}

std::string Session::set_head(const std::string& argument) {
  const int head = whole_number(argument);
  check_number(head, model_.config().kv_heads, "KV head");
  options_.place.head = head;
  return status();
}

std::string Session::decode_step(const std::string&) {
  const int32_t token[] = {capture_->step()};
  return fmt::format("\"{}\"\n{}", printable(tokenizer_.decode(token, false)), status());
}

std::string Session::set_prompt(const std::string& argument) {
  const Watch limits = watch();
  capture_ = std::make_unique<Capture>(device_, model_, tokenizer_.encode(argument), options_.kv, [&] { limits.check(); });
  return status();
}

std::string Session::set_page(const std::string& argument) {
  Draft candidate = draft_;
  candidate.set_page(whole_number(argument));
  look(candidate.script());
  draft_ = std::move(candidate);
  return {};
}

std::string Session::plan(const std::string&) {
  const ModelConfig& config = model_.config();
  const std::string& device = device_.info().name;
  const Workload workload{options_.model, config.layers, config.kv_heads, capture_->tokens(), 1, device, usual_bandwidth(device)};
  return printable(plan_report(compile(flow(":plan")), workload).text);
}

double Session::layer_mass(const FlowGraph& graph, int layer, const Watch& limits) const {
  const ModelConfig& config = model_.config();
  if (!graph.layers.is_sparse(layer, config.layers)) return 1;
  double share = 0;
  for (int head = 0; head < config.kv_heads; ++head) {
    limits.check();
    const std::vector<double> mass = page_mass(capture_->row(layer, head), 1);
    std::vector<int32_t> selected;
    if (graph.selection() != kNoNode)
      selected = evaluate(graph, graph.selection(), &graph, *capture_, {layer, head}, limits).pages;
    const std::vector<bool> seen = attended_tokens(graph, graph.selection(), selected, {layer, head}, mass.size());
    for (size_t token = 0; token < seen.size(); ++token) {
      if (seen[token]) share += mass[token] / config.kv_heads;
    }
  }
  return share;
}

std::string Session::mass(const std::string&) {
  const FlowGraph graph = replayable_flow(":mass");
  const Watch limits = watch();
  std::string text = "share of the dense attention mass, mean of the KV heads\n";
  for (int layer = 0; layer < model_.config().layers; ++layer) {
    const double share = layer_mass(graph, layer, limits);
    text += fmt::format("layer {:>2}  {:>5.1f}%  {}\n", layer, 100 * share, share_bar(share, options_.style));
  }
  if (!graph.patterns.empty() && graph.selection() != kNoNode)
    text += "as if flow.index were shown all pages: flow.pattern shows it those that have a token for the step\n";
  return text;
}

std::string Session::time(const std::string&) {
  const Plan plan = compile(replayable_flow(":time")).plan;
  if (!plan.graph.patterns.empty()) {
    return "flow.pattern is not shown to a step alone: `sluice plan` says what it costs, `sluice bench serve` measures it\n";
  }
  const StepTimes times = time_step(device_, plan, capture_->row(options_.place.layer, options_.place.head), watch());
  const auto line = [](const char* what, double seconds, const std::string& note) {
    return fmt::format("  {:<20} {:>8.1f} us  {}\n", what, seconds * kMicroseconds, note);
  };
  return fmt::format("one decode step of this head on {}\n", device_.info().name) +
         line("dense attention", times.dense, fmt::format("{} pages", times.all_pages)) +
         line("the flow", times.flow, fmt::format("{:.2f}x dense", times.dense / times.flow)) +
         line("  its attention", times.selected,
              fmt::format("{} pages{}", times.pages, plan.graph.beside() == nullptr ? "" : ", without the pattern beside them")) +
         line(plan.graph.beside() == nullptr ? "  its index stage" : "  all else of it",
              std::max(0.0, times.flow - times.selected), "the difference");
}

std::string Session::shape(const std::string& argument) {
  const Inspection seen = look_at_expression(argument);
  if (seen.kind == Inspection::Kind::kSelection) return "a selection of pages\n";
  if (seen.kind != Inspection::Kind::kTensor) return show(seen, draft_, true);
  const int pages = oracle::pages_of(seen.graph, capture_->tokens());
  return shape_text(seen.graph.nodes[static_cast<size_t>(seen.node)].shape, pages) + "\n";
}

std::string Session::graph(const std::string& argument) {
  const Inspection seen = look_at_expression(argument);
  if (seen.node == kNoNode) throw InputError("it is no tensor and no selection, so no operator computes it");
  return printable(to_text(subgraph(seen.graph, seen.node)));
}

std::string Session::load(const std::string& argument) {
  if (argument == "-") throw InputError("standard input is the session itself", "name a file or a shipped flow");
  const std::optional<int64_t> submission = submission_of(argument);
  const FlowScript script = submission ? server().script(*submission) : read_flow_as_written(argument);
  const Entry whole{script.source, {script.file, 1}};
  script.trace(trace_options());  // what is wrong with it is said before how it is written
  if (!Draft().add(whole)) throw InputError(fmt::format("{} declares no flow by sluice.flow{{...}}", script.file), kFlowForm);
  Draft candidate = extended(whole);
  static_cast<void>(look(candidate.script()));  // what no line could be looked at with is not taken
  draft_ = std::move(candidate);
  parent_ = submission;
  return show_flow({});
}

std::string Session::save(const std::string& argument) {
  std::error_code unknown;
  const char* what = std::filesystem::is_regular_file(argument, unknown) ? "replaced" : "written";
  OutputFile(argument, {}).write(draft_.script().text);
  const char* const lacks = draft_.leaves_index_out() ? ", without lines whose values nothing returns"
                            : draft_.is_whole()       ? ""
                                                      : "; it selects no pages yet";
  return fmt::format("{} {}{}\n{}", printable(argument), what, lacks, draft_.is_whole() ? what_is_wrong() : "");
}

std::string Session::what_is_wrong() const {
  try {
    compile(traced(draft_.script()));
    return {};
  } catch (const InputError& error) {
    return fmt::format("it is no flow yet: {}\n", printable(error.what()));
  }
}

std::string Session::show_flow(const std::string&) { return printable(draft_.script().text); }

std::string Session::reset(const std::string&) {
  draft_ = Draft();
  parent_.reset();
  return {};
}

std::string Session::quit(const std::string&) {
  ended_ = true;
  return {};
}

}  // namespace sluice::repl
