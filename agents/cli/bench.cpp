#include "agents/bench/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "host/weights/random_weights.h"
#include "scripting/base/error.h"
#include "scripting/base/output_file.h"
#include "scripting/base/printable_text.h"

namespace sluice::cli {
namespace {

struct Benchmark {
  const char* name;
  const char* about;
  BenchReport (*run)(const BenchOptions&);
};

constexpr double kRateSeconds = 20;  // of requests that arrive, where --seconds says nothing

constexpr Benchmark kBenchmarks[] = {
    {"attention", "decode attention, dense and over lists of pages, beside the copy bandwidth", run_attention_bench},
    {"topk", "selection of pages", run_topk_bench},
    {"index", "index stages of flows: scoring and selection", run_index_bench},
    {"layer", "the attention layer of a decode step, flows beside dense", run_layer_bench},
    {"prefill", "causal attention of prompts, beside the arithmetic peak", run_prefill_bench},
    {"patterns", "prompts and decode steps under static patterns, on a GPU", run_patterns_bench},
    {"gemm", "products with weights, and all between two layers' attention, beside memory and arithmetic", run_gemm_bench},
    {"serve", "tokens a second of the serving loop", run_serve_bench},
    {"segments", "time to the first token where most of a prompt stood elsewhere before", run_segments_bench},
};

/// Files that must not be written over.
std::vector<std::string> inputs_of(const BenchOptions& options) {
  std::vector<std::string> inputs = {options.model};
  std::error_code error;
  // A pipe can be read only once, by the benchmark.
  for (const std::string& flow : {options.flow, options.beside}) {
    if (std::filesystem::is_regular_file(flow, error)) inputs.push_back(flow);
  }
  return inputs;
}

void run(const Benchmark& benchmark, const BenchOptions& options, const std::string& json_file) {
  std::optional<OutputFile> json;
  if (!json_file.empty()) json.emplace(json_file, inputs_of(options));
  const BenchReport report = benchmark.run(options);
  fmt::print("{}", printable(to_table(report)));
  if (json) json->write(to_json(report));
  for (const BenchRow& row : report.rows) {
    if (!row.correct)
      throw InternalError(fmt::format("benchmark \"{}\", case \"{}\" gave a wrong result", report.name, row.name));
  }
}

void add_rates(CLI::App& command, std::vector<double>& rates) {
  const auto take = [&rates](const std::vector<std::string>& texts) {
    rates.clear();
    for (const std::string& text : texts) {
      for (std::string item : split_list("--rate", text)) {
        const std::string refused = finite_number(1e-3, 1e6)(item);
        if (!refused.empty()) throw CLI::ValidationError("--rate", refused);
        rates.push_back(std::stod(item));
      }
    }
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--rate", take, "Requests a second that arrive, served or not, for --seconds (20 by default)")
      ->allow_extra_args(false)
      ->option_text(kListText);
}

/// A model, or the shape of one.
void add_model_or_shape(CLI::App& command, BenchOptions& options) {
  CLI::Option* model = add_model(command, options.model);
  CLI::Option* random =
      command
          .add_option("--random-weights", options.random_weights,
                      fmt::format("A model of this shape with random weights: {}", fmt::join(known_geometries(), ", ")))
          ->excludes(model)
          ->option_text("NAME");
  command.add_option("--layers", options.layers, "Layers of it; 0: all")->check(decimal_number(0, 1024))->needs(random);
}

void add_serve_options(CLI::App& command, BenchOptions& options) {
  command.footer("Example: sluice bench serve --random-weights qwen3-0.6b --layers 4 --batch 2 --tokens 512 --k 13 --profile");
  add_model_or_shape(command, options);
  CLI::Option* beside =
      command.add_option("--beside", options.beside, "Another flow, to compare with in place of dense attention")
          ->option_text("FLOW");
  command.add_option("--batch", options.batch, "Sequences that decode together")
      ->check(decimal_number(1, 256))
      ->capture_default_str();
  command.add_option("--tokens", options.tokens, "Tokens of each prompt")
      ->check(decimal_number(2, 1 << 20))
      ->capture_default_str();
  command.add_option("--generate", options.generate, "Decode steps to measure; with --rate: tokens of an answer")
      ->check(decimal_number(2, 1 << 16));
  command.add_option("--chunk", options.chunk, "Rows of a pass at most: of prompts together")->check(decimal_number(2, 1 << 16));
  command.add_option("--k", options.budget.k, "Pages that the flow selects beyond the first and last")
      ->check(decimal_number(0, 1 << 20));
  command.add_option("--first", options.budget.first, "First pages that it always keeps")->check(decimal_number(0, 1 << 20));
  command.add_option("--last", options.budget.last, "Last pages that it always keeps")->check(decimal_number(0, 1 << 20));
  command.add_flag("--profile", options.profile,
                   "Also show the time of a decode step by kernel, or by operation where kernels cannot be recorded");
  add_rates(command, options.rates);
  beside->excludes("--rate");
  command
      .add_flag("--disaggregated", options.disaggregated,
                "Prompts arrive with K and V that another engine has computed: only a copy to pages of their own is left to do")
      ->needs("--rate");
}

void add_segments_options(CLI::App& command, BenchOptions& options) {
  add_model_or_shape(command, options);
  command.add_option("--tokens", options.tokens, "Tokens of the prompt")
      ->check(decimal_number(32, 1 << 20))
      ->capture_default_str();
  command.add_option("--segment", options.segment, "Tokens of each segment")
      ->check(decimal_number(16, 1 << 20))
      ->capture_default_str();
  command.add_option("--reused", options.reused, "Share of the prompt that is segments")
      ->check(finite_number(0.01, 0.999))
      ->capture_default_str();
  command.add_option("--chunk", options.chunk, "Rows of a pass at most")->check(decimal_number(2, 1 << 16));
  CLI::Option* const boundary =
      command.add_option("--boundary", options.boundary, "Layer that rules look at: all rows are computed below it")
          ->check(decimal_number(0, 1024))
          ->capture_default_str();
  command.add_option("--together", options.together, "So many requests at once, in place of one after the other")
      ->check(decimal_number(1, 1024))
      ->excludes("--chunk");
  command.add_option("--documents", options.documents, "Segments that requests at once have in common, each some of them")
      ->check(decimal_number(1, 1024))
      ->capture_default_str();
  CLI::Option* const share = command.add_option("--share", options.share, "Share of the copied tokens that rules choose")
                                 ->check(finite_number(0, 1))
                                 ->capture_default_str();
  add_list(command, "--rules", options.rules,
           "Flows with flow.recompute, or shipped ones: sparsex[share=0.3],mine.lua (they say boundary and share themselves)")
      ->excludes(boundary)
      ->excludes(share);
}

}  // namespace

void add_bench(CLI::App& app) {
  struct Settings {
    BenchOptions options;
    std::string json_file;
  };
  const auto settings = std::make_shared<Settings>();
  CLI::App* bench =
      app.add_subcommand("bench", "Measures a part of Sluice beside its limit, and checks the result in the same run.");
  bench->footer("Example: sluice bench attention --threads 2 --json attention.json");
  bench->require_subcommand(1);
  for (const Benchmark& benchmark : kBenchmarks) {
    CLI::App* command = bench->add_subcommand(benchmark.name, benchmark.about);
    const char* const device = benchmark.run == run_patterns_bench ? " --device cuda" : "";
    command->footer(fmt::format("Example: sluice bench {}{} --json {}.json", benchmark.name, device, benchmark.name));
    command->add_option("--json", settings->json_file, "Also write the report here (schema sluice.bench/1)");
    if (benchmark.run != run_topk_bench) {  // which is a thing of one thread
      command->add_option("--threads", settings->options.threads, "Threads; 0: all cores this process may use")
          ->check(decimal_number(0, 1024));
    }
    command->add_option("--device", settings->options.device, "cpu or cuda")->capture_default_str();
    command->add_option("--seconds", settings->options.seconds, "Seconds of measuring for each case")
        ->check(finite_number(0, 600))
        ->capture_default_str();
    if (benchmark.run == run_index_bench || benchmark.run == run_layer_bench || benchmark.run == run_serve_bench) {
      command->add_option("--flow", settings->options.flow, "Lua file, - for standard input, or the name of a shipped flow");
    }
    if (benchmark.run == run_layer_bench || benchmark.run == run_patterns_bench) {
      command->add_option("--case", settings->options.only, "Only the case of this number, from 1")
          ->check(decimal_number(1, 100));
    }
    if (benchmark.run == run_serve_bench) add_serve_options(*command, settings->options);
    if (benchmark.run == run_segments_bench) add_segments_options(*command, settings->options);
    command->callback([settings, command, &benchmark] {
      BenchOptions& options = settings->options;
      if (!options.rates.empty() && options.profile) {
        throw InputError("--profile shows a decode step of a batch, and --rate has none", "give one of them");
      }
      if (!options.rates.empty() && command->count("--seconds") == 0) options.seconds = kRateSeconds;
      run(benchmark, options, settings->json_file);
    });
  }
}

}  // namespace sluice::cli
