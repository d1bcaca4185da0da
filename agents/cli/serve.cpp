#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <utility>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/cli/server_life.h"
#include "agents/evaluation/suite.h"
#include "scripting/base/error.h"
#include "scripting/base/freed_memory.h"
#include "scripting/graph/types.h"

namespace sluice::cli {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostRate = 1'000'000;

/// What is wrong with the origin of a site; "" if nothing is.
std::string is_origin(const std::string& text) {
  const size_t scheme = text.starts_with("http://") ? 7 : text.starts_with("https://") ? 8 : std::string::npos;
  const bool whole = scheme < text.size() && text.find_first_of("/?#@ *", scheme) == std::string::npos;
  return whole ? "" : fmt::format("\"{:.60}\" is no origin: scheme, name and port alone, as in https://example.org", text);
}

/// What is wrong with the name of a host; "" if nothing is.
std::string is_host_name(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
  return plain ? "" : fmt::format("\"{:.60}\" is no host name: without scheme and port, as in example.org", text);
}

/// Throws InputError.
void check_tokens(const ServeOptions& options) {
  if (!options.harness.folder.empty()) return;
  if (options.http.gate.token_for_reading) {
    throw InputError("--token-for-reading without --data: nobody could read, since there are no tokens",
                     "--data sluice-data, and sluice agent add NAME for each reader");
  }
  if (options.open_completions) throw InputError("--open-completions without --data: completions are open there anyway");
}

/// Throws InputError for a type of K and V that the device has not.
void check_kv(const GenerationOptions& generation) {
  if (!generation.kv || *generation.kv == DataType::kBF16) return;
  const bool cuda = generation.device == "cuda";
  if ((*generation.kv == DataType::kF32) != cuda) return;
  throw InputError(fmt::format("K and V in {} on {}", name_of(*generation.kv), generation.device),
                   cuda ? "bf16, e4m3 and e5m2 are there" : "f32 and bf16 are there");
}

void serve(ServeOptions options) {
  check_tokens(options);
  check_kv(options.generation);
  keep_little_freed_memory();
  ServerLife(std::move(options)).run();
}

// Options, in the order of their help.

/// Of the harness, all of which need `--data`.
void add_judging(CLI::App& command, HarnessOptions& harness) {
  CLI::Option* data =
      command
          .add_option("--data", harness.folder,
                      "Folder of submissions and what became of them: agents may hand in flows (sluice agent add)")
          ->check([](const std::string& folder) { return folder.empty() ? "the folder's name is empty" : ""; }, "");
  command
      .add_option("--workers", harness.workers,
                  "Submissions that are judged at once, each by a process of its own, on CUDA each on a GPU of its own (default: "
                  "one a GPU, or one on the CPU)")
      ->check(decimal_number(1, 256))
      ->needs(data);
  command.add_option("--judge-seconds", harness.seconds, "Most that the judging of one submission may take")
      ->check(finite_number(1, 1e6))
      ->needs(data)
      ->capture_default_str();
  command
      .add_option("--judge-mib", harness.flow_mib,
                  "Memory that judging a flow may take in a worker, beyond the model and the prompts")
      ->check(decimal_number(1, 1 << 20))
      ->needs(data)
      ->capture_default_str();
  command
      .add_flag("--no-confirm{false}", harness.confirms,
                "Do not have what enters the front of score and speed judged once more by itself, on new questions")
      ->needs(data);
  command.add_option("--suite", harness.suite, "By which they are judged unless they say otherwise")
      ->check(CLI::IsMember(built_in_suites()))
      ->needs(data)
      ->capture_default_str();
  CLI::Option* last = command
                          .add_option("--final-model", harness.final_model,
                                      "Another model, as --model takes it, that judges once more what passed, and ranks it")
                          ->check([](const std::string& model) { return model.empty() ? "the model's name is empty" : ""; }, "")
                          ->needs(data);
  command
      .add_option("--final-suite", harness.final_suite,
                  "By which the final model judges (default: real, or standard for a model with the mini dialect)")
      ->check(CLI::IsMember(built_in_suites()))
      ->needs(last);
}

void add_address(CLI::App& command, HttpServerOptions& http) {
  http.port = 8080;
  command.add_option("--host", http.host, "Address to listen at")->capture_default_str();
  command.add_option("--port", http.port, "0: any that is free")->check(decimal_number(0, 65535))->capture_default_str();
  add_list(command, "--allow-host", http.gate.host_names,
           "Names besides localhost under which this server is called; IP addresses need none")
      ->check(is_host_name, "");
  add_list(command, "--allow-origin", http.gate.origins, "Other sites whose pages may call: https://example.org")
      ->check(is_origin, "");
}

void add_rates(CLI::App& command, RateLimits& rates) {
  command
      .add_option("--writes-per-minute", rates.writes_per_minute,
                  "Of each token's holder; completions count as reads; 0: no limit")
      ->check(decimal_number(0, kMostRate))
      ->capture_default_str();
  command
      .add_option("--reads-per-second", rates.reads_per_second,
                  "Of each token's holder, and of each address without a token; 0: no limit")
      ->check(decimal_number(0, kMostRate))
      ->capture_default_str();
}

/// Who needs a token.
void add_access(CLI::App& command, ServeOptions& options) {
  CLI::Option* reading = command.add_flag("--token-for-reading", options.http.gate.token_for_reading,
                                          "Nothing is told without a token of --data, health and /v1/openapi.json excepted; "
                                          "the page for people sends none and shows nothing then");
  command
      .add_flag("--open-completions", options.open_completions,
                "Anybody may have text generated; without it, that needs a token where there is --data")
      ->excludes(reading);
}

void add_generation(CLI::App& command, ServeOptions& options) {
  GenerationOptions& generation = options.generation;
  add_model(command, generation.model);
  command.add_option("--device", generation.device, "cpu or cuda")->capture_default_str();
  command.add_option("--threads", generation.threads, "0: all cores")
      ->check(decimal_number(0, kMostThreads))
      ->capture_default_str();
  add_list(command, "--flow", options.flows,
           "Flows that requests may name: files or shipped ones (default: those shipped that stand in no folder)");
  command.add_option("--batch", generation.batch, "Requests of one flow that run at once; 0: 16, on CUDA 64")
      ->check(decimal_number(0, 1024))
      ->capture_default_str();
  command.add_option("--chunk", generation.chunk, "Tokens of prompts and answers in one pass; 0: 256, on CUDA 2048")
      ->check(decimal_number(0, 1 << 16))
      ->capture_default_str();
  command.add_option("--engines", generation.most_engines, "Flows, dense attention included, that have an engine at once")
      ->check(decimal_number(1, 64))
      ->capture_default_str();
  command
      .add_option("--pool-mib", options.pool_mib,
                  "Size of the page pool of each engine, or of each that engines share; 0: 256, on CUDA a part of what is free")
      ->check(decimal_number(0, 1 << 20))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--kv", [&generation](const std::string& name) { generation.kv = data_type_from_name(name); },
          "Type of K and V: f32 (cpu), bf16, e4m3 or e5m2 (cuda) (default: each flow's, for dense attention bf16)")
      ->check(CLI::IsMember({"f32", "bf16", "e4m3", "e5m2"}));
  command.add_flag("--share-cache", generation.shares_cache,
                   "Flows whose pages have one size share one pool: what one has computed of a prompt the others find");
  command
      .add_option("--requests", generation.most_requests,
                  "Requests that may run and wait; more get 503, but for callers who have few")
      ->check(decimal_number(1, 1 << 20))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand(
      "serve", "Serve a model over HTTP: OpenAI's endpoints, metrics and health; with --data also the harness for agents");
  command->footer("Example: sluice serve --port 8080 --data sluice-data --flow quest --flow streaming");
  add_judging(*command, options->harness);
  add_address(*command, options->http);
  add_rates(*command, options->rates);
  add_access(*command, *options);
  add_generation(*command, *options);
  command->add_flag("--quiet", options->quiet, "Log errors alone, not every request");
  command->callback([options] { serve(*options); });
}

}  // namespace sluice::cli
