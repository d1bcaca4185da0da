#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "agents/cli/commands.h"
#include "agents/evaluation/cascade.h"
#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/problem_set.h"
#include "agents/tasks/vocabulary.h"
#include "host/default_model.h"
#include "host/model.h"
#include "host/tokenizer.h"
#include "kernels/device.h"
#include "scripting/graph/error.h"
#include "scripting/lua/trace.h"

namespace sluice::cli {
namespace {

struct EvalOptions {
  std::vector<std::string> flows;
  std::string model;
  std::string device = "cpu";
  std::string suite = "quick";
  std::string json;
  std::string seed;
  int threads = 0;
  bool dense_only = false;
  SuiteChanges changes;
};

/// Opened before the work, so that a bad path costs nothing.
std::ofstream open_output(const std::string& path) {
  std::ofstream stream(path);
  if (!stream) throw InputError(fmt::format("{}: cannot be written", path));
  return stream;
}

void write_output(std::ofstream& stream, const std::string& path, const std::string& text) {
  stream << text << std::flush;
  if (!stream) throw InputError(fmt::format("{}: writing failed", path), "is the disk full?");
}

std::vector<Contestant> find_contestants(const std::vector<std::string>& flows) {
  std::vector<Contestant> contestants;
  for (const std::string& flow : flows) {
    Contestant contestant{std::filesystem::path(flow).stem().string(), flow};
    try {
      contestant.path = find_flow(flow);
    } catch (const InputError&) {
      if (flows.size() == 1) throw;  // among others it becomes a line of the table
    }
    contestants.push_back(std::move(contestant));
  }
  return contestants;
}

/// What would otherwise be found only when its turn comes.
void check_suite(const Suite& suite, const ModelConfig& config) {
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      if (task.is_problem_set()) {
        load_problems(task.problem_file());
      } else if (task.tokens > config.max_positions) {
        throw InputError(
            fmt::format("a context of {} tokens exceeds the model's {} positions", task.tokens, config.max_positions),
            "choose --tokens or a suite with shorter contexts");
      }
    }
  }
}

/// A lone flow that does not even trace is an input error, found before the model is loaded.
void check_lone_flow(const std::string& path, const ModelConfig& config) {
  TraceOptions options;
  options.head_dim = config.head_dim;
  options.group = config.group();
  compile(trace_file(path, options));
}

void evaluate(const EvalOptions& options) {
  if (options.flows.empty() && !options.dense_only) {
    throw InputError("no flow to evaluate",
                     fmt::format("give a path or a shipped flow's name, or --dense-only: sluice eval quest"));
  }
  if (!options.flows.empty() && options.dense_only) throw InputError("--dense-only evaluates no flow, but flows were given");
  const Suite suite = changed(load_suite(options.suite), options.changes);
  const std::vector<Contestant> contestants = find_contestants(options.flows);
  const std::string directory = options.model.empty() ? default_model() : options.model;
  const ModelConfig config = load_config(directory);
  check_suite(suite, config);
  if (contestants.size() == 1) check_lone_flow(contestants.front().path, config);
  const auto device = create_device(options.device, options.threads);
  const auto vocabulary = load_vocabulary(directory);
  const auto tokenizer = load_tokenizer(directory);
  std::ofstream json;
  if (!options.json.empty()) json = open_output(options.json);
  const auto model = load_model(directory, *device);

  const TaskContext context{*tokenizer, vocabulary ? &*vocabulary : nullptr, config.max_positions};
  EngineRunner runner(*device, *model, *tokenizer);
  const Seed seed = options.seed.empty() ? Seed::secret() : Seed::parse(options.seed);
  Progress progress;
  Report report = run_cascade(suite, contestants, runner, context, seed, progress);
  report.device = device->info().name;
  report.device_description = device->info().description;
  report.model = directory;
  fmt::print("{}", to_table(report));
  if (!options.json.empty()) write_output(json, options.json, to_json(report));
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "Judges flows: accuracy and speed beside dense attention, on the same samples");
  command->add_option("flow", options->flows, "Paths of .lua files, or names of shipped flows");
  command->add_option("--model", options->model, "A Hugging Face directory (default: the model that ships with Sluice)");
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--suite", options->suite, "quick, full, or a JSON file")->capture_default_str();
  command->add_option("--json", options->json, "Write the result to this file, too (schema sluice.eval/1)");
  command->add_option("--seed", options->seed, "Repeat the samples of an earlier run (default: secret and new)");
  command->add_option("--threads", options->threads, "CPU threads (default: all)")->check(CLI::Range(1, 1024));
  command->add_option("--tasks", options->changes.tasks, "Only these tasks; jsonl:FILE for problems of your own")->delimiter(',');
  command->add_option("--tokens", options->changes.tokens, "Only these context lengths")->delimiter(',');
  command->add_option("--samples", options->changes.samples, "Samples a task")->check(CLI::Range(1, 100000));
  command
      ->add_option("--generations", options->changes.generations, "Generations a problem (jsonl), at temperature 0.6, top-p 0.95")
      ->check(CLI::Range(1, 1000));
  command->add_option("--k", options->changes.k, "Report pass@k (jsonl)")->check(CLI::Range(1, 1000));
  command->add_option("--max-tokens", options->changes.max_tokens, "Most tokens of one generation (jsonl)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_flag("--dense-only", options->dense_only, "Measure the model with dense attention alone");
  command->footer(
      "Example:\n"
      "  sluice eval quest my_flow.lua --suite quick --json result.json\n"
      "  sluice eval quest --tasks needle_multikey,trace --tokens 4096 --samples 50\n"
      "  sluice eval quest --model ~/Qwen3-1.7B --tasks jsonl:aime24.jsonl --generations 16 --k 16");
  command->callback([options] { evaluate(*options); });
}

}  // namespace sluice::cli
