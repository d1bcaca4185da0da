#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/judge.h"
#include "agents/evaluation/suite.h"
#include "agents/evaluation/terminal_progress.h"
#include "agents/evaluation/trace_runner.h"
#include "host/weights/model_path.h"
#include "scripting/base/error.h"
#include "scripting/base/output_file.h"

namespace sluice::cli {
namespace {

struct EvalOptions {
  std::vector<std::string> flows;
  std::vector<std::string> parameters;  // "NAME=A,B"
  std::string model;
  std::string device = "cpu";
  std::string suite = "quick";
  std::string json;
  std::optional<std::string> seed;
  std::optional<std::string> traces;  // the directory of a trace; "" the shipped one
  int threads = 0;
  bool dense_only = false;
  bool details = false;
  bool list = false;
  SuiteChanges changes;
};

void list_choices() {
  std::vector<std::string> of_all;
  std::vector<std::string> english = {"text", "text:FILE", "copy", "copy:FILE", "jsonl:FILE"};
  for (const Task& task : all_tasks()) (task.in_mini ? of_all : english).push_back(task.name);
  fmt::print("flows:  {}\n", fmt::join(shipped_flows(), " "));
  fmt::print("        with static patterns: {}\n", fmt::join(shipped_flows("patterns"), " "));
  fmt::print("        with covers: {}\n", fmt::join(shipped_flows("covers"), " "));
  fmt::print("        by what attention gave: {}\n", fmt::join(shipped_flows("masses"), " "));
  fmt::print("        forgetting tokens: {}\n", fmt::join(shipped_flows("eviction"), " "));
  fmt::print("        computing copied text again: {}\n", fmt::join(shipped_flows("recompute"), " "));
  fmt::print("tasks:  {}\n", fmt::join(of_all, " "));
  fmt::print("        of models that know English, too: {}\n", fmt::join(english, " "));
  fmt::print("suites: {} FILE.json\n", fmt::join(built_in_suites(), " "));
}

/// The values that a parameter is to have, one after the other.
struct ParameterRange {
  std::string name;
  std::vector<std::string> values;
};

std::vector<ParameterRange> ranges_of(const std::vector<std::string>& options) {
  std::vector<ParameterRange> ranges;
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InputError(fmt::format("--set {} sets nothing", option), "for example --set refined=0,1/16,1/8");
    ParameterRange range{option.substr(0, equals), split_list("--set", option.substr(equals + 1))};
    const auto called_so = [&](const ParameterRange& other) { return other.name == range.name; };
    if (std::any_of(ranges.begin(), ranges.end(), called_so))
      throw InputError(fmt::format("--set: \"{}\" is set twice", range.name));
    for (auto value = range.values.begin(); value != range.values.end(); ++value) {
      if (std::find(range.values.begin(), value, *value) != value)
        throw InputError(fmt::format("--set: \"{}\" is to be {} twice", range.name, *value));
    }
    ranges.push_back(std::move(range));
  }
  return ranges;
}

/// `flow` under every combination of values; with parameters of its own those hold, too.
std::vector<FlowReference> combinations(const std::string& flow, const std::vector<ParameterRange>& ranges) {
  constexpr size_t kMost = 1000;
  std::vector<FlowReference> all = {parse_flow_reference(flow)};
  for (const ParameterRange& range : ranges) {
    std::vector<FlowReference> longer;
    if (all.size() * range.values.size() > kMost)
      throw InputError(fmt::format("--set makes more than {} flows of one", kMost), "set fewer values at a time");
    for (const FlowReference& each : all) {
      for (const std::string& value : range.values) {
        longer.push_back(each);
        if (!longer.back().parameters.emplace(range.name, value).second)
          throw InputError(fmt::format("{}: --set sets \"{}\", too", flow, range.name), "set it in one place");
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// With what is set behind it.
std::string with_parameters(std::string name, const ParameterValues& parameters) {
  std::string text;
  for (const auto& [parameter, value] : parameters) text += fmt::format("{}{}={}", text.empty() ? "" : ",", parameter, value);
  return text.empty() ? name : fmt::format("{}[{}]", name, text);
}

std::string short_name(const std::string& flow) { return flow == "-" ? "stdin" : std::filesystem::path(flow).stem().string(); }

/// Flows that cannot take part, each with its reason.
class Refusals {
 public:
  void add(const Contestant& contestant, const InputError& error) {
    reports_.push_back(rejected(contestant, error));
    errors_.push_back(error);
  }
  bool empty() const { return errors_.empty(); }
  size_t size() const { return errors_.size(); }

  /// The report is written all the same. Throws InputError with every reason.
  [[noreturn]] void refuse(Report report, std::optional<OutputFile>& json) const {
    report.flows = reports_;
    if (json) json->write(to_json(report));
    if (errors_.size() == 1) throw InputError(errors_.front());
    std::string text = "these flows cannot run";
    for (size_t i = 0; i < errors_.size(); ++i) {
      text += fmt::format("\n  {}: {}", reports_[i].name, errors_[i].what());
      if (!errors_[i].hint().empty()) text += fmt::format("\n    hint: {}", errors_[i].hint());
    }
    throw InputError(text);
  }

 private:
  std::vector<FlowReport> reports_;
  std::vector<InputError> errors_;
};

/// Reads the flows, each under all values of its parameters that are asked for.
std::vector<Contestant> find_contestants(const EvalOptions& options, Refusals& unreadable) {
  const std::vector<ParameterRange> ranges = ranges_of(options.parameters);
  std::vector<std::vector<FlowReference>> references;
  for (const std::string& flow : options.flows) references.push_back(combinations(flow, ranges));
  std::vector<Contestant> contestants;
  for (const std::vector<FlowReference>& combined : references) {
    const std::string& flow = combined.front().flow;
    const auto called_so = [&](const std::vector<FlowReference>& other) {
      return other.front().flow != flow && short_name(other.front().flow) == short_name(flow);
    };
    const bool alone = std::none_of(references.begin(), references.end(), called_so);
    const std::string name = alone ? short_name(flow) : flow;
    Contestant contestant{name, {flow, {}}};
    try {
      contestant.script = read_flow(flow);
    } catch (const InputError& error) {
      unreadable.add(contestant, error);
    }
    for (const FlowReference& reference : combined) {
      contestant.name = with_parameters(name, reference.parameters);
      contestant.script.parameters = reference.parameters;
      contestants.push_back(contestant);
    }
  }
  return contestants;
}

/// Those that cannot run at all, as far as the first that can: if there is one, the others are lines of its table.
Refusals refused_statically(const std::vector<Contestant>& contestants, const ModelConfig& config, Device& device) {
  Refusals refusals;
  for (const Contestant& contestant : contestants) {
    try {
      prepare_flow(contestant.script, config, device);
      break;
    } catch (const InputError& error) {
      refusals.add(contestant, error);
    }
  }
  return refusals;
}

/// Of the trace that is asked for; of the shipped one if none is named.
std::string trace_directory(const EvalOptions& options) {
  std::string directory = options.traces->empty() ? shipped_trace() : *options.traces;
  if (!directory.empty()) return directory;
  throw InputError("no trace comes with this program", "name one that sluice trace record wrote: --traces DIR");
}

/// Files that must not be written over.
std::vector<std::string> inputs_of(const EvalOptions& options, const std::vector<Contestant>& contestants, const Suite& suite,
                                   const std::string& model) {
  std::vector<std::string> inputs = {model};
  if (options.traces) inputs.push_back(trace_directory(options));
  if (!is_built_in(options.suite)) inputs.push_back(options.suite);
  for (const Contestant& contestant : contestants) inputs.push_back(contestant.script.file);
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      if (!task.file().empty()) inputs.push_back(task.file());
    }
  }
  return inputs;
}

Seed seed_of(const EvalOptions& options) {
  if (!options.seed) return Seed::secret();
  if (options.seed->empty()) throw InputError("--seed is empty", "any text will do; without --seed it is secret and new");
  return Seed::parse(*options.seed);
}

void refuse_no_flow(const EvalOptions& options) {
  if (options.flows.empty() && !options.dense_only) {
    throw InputError("no flow to evaluate", "give a path or a shipped flow's name, or --dense-only: sluice eval quest");
  }
  if (!options.flows.empty() && options.dense_only) throw InputError("--dense-only evaluates no flow, but flows were given");
}

/// Without any model: what flows keep of the attention that was recorded.
void evaluate_on_traces(const EvalOptions& options) {
  if (options.flows.empty()) throw InputError("no flow to evaluate", "name it before --traces: sluice eval quest --traces");
  if (options.changes.keeps_answers) throw InputError("--answers: traces ask no questions", "name a --suite or --tasks as well");
  const Seed seed = seed_of(options);
  Refusals unreadable;
  const std::vector<Contestant> contestants = find_contestants(options, unreadable);
  const auto device = create_device(options.device, options.threads);
  const std::string directory = trace_directory(options);
  TraceJudge traces(*device, load_trace(directory), options.threads);
  std::optional<OutputFile> json;
  if (!options.json.empty()) {
    std::vector<std::string> inputs = {directory};
    for (const Contestant& contestant : contestants) inputs.push_back(contestant.script.file);
    json.emplace(options.json, inputs);
  }
  Report about;
  about.device = device->info().name;
  about.device_description = device->info().description;
  about.model = traces.trace().model;
  about.suite = kTracesAlone;
  about.seed = seed.hex();
  if (!unreadable.empty()) unreadable.refuse(about, json);
  const Refusals refusals = refused_statically(contestants, shape_of(traces.trace()), *device);
  if (refusals.size() == contestants.size()) refusals.refuse(about, json);
  TraceRunner runner(*device, traces);
  TerminalProgress progress;
  Report report = run_cascade_on_traces(contestants, runner, seed, progress);
  report.device = about.device;
  report.device_description = about.device_description;
  report.model = about.model;
  fmt::print("{}", to_table(report, options.details));
  if (json) json->write(to_json(report));
}

void evaluate(const EvalOptions& options) {
  refuse_no_flow(options);
  if (options.changes.keeps_answers && options.json.empty()) {
    throw InputError("--answers has no file to write to", "name one: --json FILE");
  }
  const Seed seed = seed_of(options);
  Suite suite = changed(load_suite(options.suite), options.changes);
  Refusals unreadable;
  const std::vector<Contestant> contestants = find_contestants(options, unreadable);
  const std::string path = model_path(options.model);
  const std::string traces = options.traces ? trace_directory(options) : shipped_trace();
  Judge judge(path, options.device, options.threads, 0, traces);
  std::optional<OutputFile> json;
  if (!options.json.empty()) json.emplace(options.json, inputs_of(options, contestants, suite, path));

  Report about = judge.blank_report();
  about.suite = suite.name;
  about.seed = seed.hex();
  if (!unreadable.empty()) unreadable.refuse(about, json);
  const Refusals refusals = refused_statically(contestants, judge.config(), judge.device());
  if (!contestants.empty() && refusals.size() == contestants.size()) refusals.refuse(about, json);
  judge.prepare(suite);
  TerminalProgress progress;
  const Report report = judge.judge(suite, contestants, seed, progress);
  fmt::print("{}", to_table(report, options.details));
  if (json) json->write(to_json(report));
  if (report.failure) std::rethrow_exception(report.failure);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "Judges flows: accuracy and speed beside dense attention, on the same samples");
  command->add_option("flow", options->flows, "Lua files, - for standard input, or names of shipped flows");
  command->add_option(
      "--set", options->parameters,
      "NAME=A,B,...: judge the flows with each of these values of a parameter; again for another: all combinations");
  add_model(*command, options->model);
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command
      ->add_option("--suite", options->suite,
                   "verify, quick, standard, full, real (for models of natural language), reuse (flow.recompute), or a JSON file")
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the result to this file, too (schema sluice.eval/1)");
  command->add_option("--seed", options->seed, "Repeat the samples of an earlier run (default: secret and new)");
  command->add_option("--threads", options->threads, "CPU threads; 0: all")
      ->check(decimal_number(0, 1024))
      ->capture_default_str();
  command
      ->add_option_function<std::vector<std::string>>(
          "--traces", [options](const std::vector<std::string>& named) { options->traces = named.empty() ? "" : named.front(); },
          "Judge on the attention of this trace, by default the shipped one; without a suite or a model on that alone")
      ->expected(0, 1)
      ->option_text("[DIR]");
  SuiteChanges& changes = options->changes;
  add_list(*command, "--tasks", changes.tasks,
           "Only these tasks; text:FILE and copy:FILE for texts, jsonl:FILE for problems of your own");
  add_number_list(*command, "--tokens", changes.tokens, kLeastContext, kMostContext, "Only these context lengths");
  command->add_option("--segment", changes.segment, "Tokens of each segment that is copied (suite reuse)")
      ->check(decimal_number(128, 1 << 20));
  command->add_option("--samples", changes.samples, "Samples a task")->check(decimal_number(1, 100000));
  command
      ->add_option("--times", changes.factor,
                   "So many times as many samples; 4 with its --seed repeats what a server has confirmed")
      ->check(decimal_number(1, 1000));
  command->add_option("--generations", changes.generations, "Generations a problem (jsonl), at temperature 0.6, top-p 0.95")
      ->check(decimal_number(1, 1000));
  command->add_option("--k", changes.k, "Report pass@k (jsonl)")->check(decimal_number(1, 1000));
  command->add_option("--max-tokens", changes.max_tokens, "Most tokens of one generation (jsonl)")
      ->check(decimal_number(1, 1 << 20));
  command->add_flag("--answers", changes.keeps_answers, "In the file of --json, too: every question, and what each answered");
  command->add_flag("--no-speed", changes.without_speed, "Do not measure speed: accuracy alone, in less time");
  command->add_flag("--dense-only", options->dense_only, "Measure the model with dense attention alone");
  command->add_flag("--details", options->details, "Every task by itself, with the samples that a flow lost and gained");
  command->add_flag("--list", options->list, "Print the names of flows, tasks and suites");
  command->footer(
      "Example:\n"
      "  sluice eval quest my_flow.lua --suite quick --json result.json\n"
      "  sluice eval quest --tasks needle_multiquery,trace --tokens 4096 --samples 50\n"
      "  sluice eval quest my_flow.lua --traces\n"
      "  sluice eval luka_choices --set refined=0,1/16,1 --set bias=count,none --tasks salad_easy\n"
      "  sluice eval quest --model ~/Qwen3-1.7B --suite real\n"
      "  sluice eval quest --model ~/Qwen3-1.7B --tasks jsonl:aime24.jsonl --generations 16 --k 16");
  command->callback([options, command] {
    if (options->list) return list_choices();
    const auto is_given = [&](const char* option) { return command->count(option) > 0; };
    const auto of_questions = {"--suite",   "--model",       "--tasks", "--tokens",     "--samples",   "--times",
                               "--segment", "--generations", "--k",     "--max-tokens", "--dense-only"};
    if (options->traces && std::none_of(of_questions.begin(), of_questions.end(), is_given)) return evaluate_on_traces(*options);
    evaluate(*options);
  });
}

}  // namespace sluice::cli
