#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "agents/generation/generation_api.h"
#include "agents/harness/harness.h"
#include "agents/harness/harness_routes.h"
#include "agents/harness/submitted_flows.h"
#include "agents/http/descriptor_budget.h"
#include "agents/http/http_server.h"
#include "agents/http/rate_limiter.h"
#include "agents/http/stop_signal.h"
#include "agents/mcp/harness_tools.h"
#include "agents/mcp/mcp_server.h"
#include "agents/web/web_files.h"
#include "agents/web/web_routes.h"
#include "host/weights/default_model.h"
#include "kernels/cuda/codegen/refusal.h"
#include "kernels/device.h"
#include "kernels/device/device_refusal.h"
#include "scripting/base/error.h"
#include "scripting/base/freed_memory.h"
#include "scripting/base/printable_text.h"
#include "store/error.h"

namespace sluice::cli {

namespace {

struct ServeOptions {
  std::vector<std::string> flows;
  int pool_mib = 0;
  bool quiet = false;
  bool open_completions = false;  // with a data folder, too
  HarnessOptions harness;
  HttpServerOptions http;
  RateLimits rates;
  GenerationOptions generation;
};

/// Scripts by the name that requests use. Throws InputError for one that cannot be read, FlowError for one that cannot be traced
/// for the model, or that the device does not take.
std::map<std::string, FlowScript> read_flows(const ServeOptions& options, const ModelConfig& config) {
  std::map<std::string, FlowScript> scripts;
  for (const std::string& flow : options.flows.empty() ? shipped_flows() : options.flows) {
    FlowScript script = read_flow(flow);
    const FlowGraph graph = script.trace(trace_options(config));
    require_device_takes(compile(graph).plan, options.generation.device);
    const std::string name = graph.name;
    if (!scripts.emplace(name, std::move(script)).second) {
      throw InputError(fmt::format("two flows are called \"{}\"", name),
                       "give each a name of its own in sluice.flow{name = ...}");
    }
  }
  return scripts;
}

HarnessOptions harness_options(const ServeOptions& options) {
  HarnessOptions harness = options.harness;
  harness.model = options.generation.model;
  harness.device = options.generation.device;
  harness.threads = options.generation.threads;
  return harness;
}

/// Makes the data folder where there is none.
std::unique_ptr<Harness> open_harness(const HarnessOptions& options, spdlog::logger& log) {
  try {
    auto opened = std::make_unique<Harness>(options);
    for (const std::string& notice : opened->notices()) log.warn("{}", notice);
    return opened;
  } catch (const store::StoreError& error) {
    if (error.kind() == store::ErrorKind::kInternal) throw InternalError(error.what());
    throw InputError(error.what(), error.hint());
  }
}

/// Descriptors for whatever is no connection: workers, the sandbox, stores, the repository, and GPUs, of which each process has
/// some.
size_t kept_descriptors(const ServeOptions& options) {
  constexpr size_t kOfServer = 64;
  constexpr size_t kOfWorker = 16;
  constexpr size_t kOfGpus = 64;
  const bool is_on_gpus = options.generation.device == "cuda";
  const size_t usual = is_on_gpus ? visible_gpus().size() : 1;
  const size_t workers = options.harness.workers > 0 ? static_cast<size_t>(options.harness.workers) : usual;
  return kOfServer + kOfWorker * workers + (is_on_gpus ? kOfGpus : 0);
}

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

/// Whether a worker has the GPU that completions run on: workers take them from the last on (gpus_of_workers).
bool judges_where_it_generates(const ServeOptions& options) {
  if (options.harness.folder.empty() || options.generation.device != "cuda") return false;
  return options.harness.workers == 0 || static_cast<size_t>(options.harness.workers) >= visible_gpus().size();
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

void serve(ServeOptions options) {
  check_tokens(options);
  keep_little_freed_memory();
  const StopSignal signal;  // before there are other threads
  leave_descriptors(options.http, allow_many_files(), kept_descriptors(options));
  std::signal(SIGPIPE, SIG_IGN);
  GenerationOptions& generation = options.generation;
  if (generation.model.empty()) generation.model = default_model();
  generation.pool_bytes = static_cast<size_t>(options.pool_mib) << 20;
  generation.shares_device = judges_where_it_generates(options);
  const auto scripts = read_flows(options, load_config(generation.model));
  if (options.harness.folder.empty()) generation.flows = static_cast<int>(scripts.size());
  std::optional<SubmittedFlows> submitted;
  if (!options.harness.folder.empty()) {
    submitted.emplace(database_of(options.harness.folder));
    generation.check_flow = [&submitted](const std::string& name) { submitted->check(name); };
  }
  generation.read_flow = [&](const std::string& name, const TraceOptions& trace) {
    const auto script = scripts.find(name);
    return (script != scripts.end() ? script->second : submitted->script(name)).trace(trace);
  };
  const auto log = std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_level(options.quiet ? spdlog::level::err : spdlog::level::info);
  options.http.log = generation.log = log;
  spdlog::set_default_logger(log);
  std::atomic<bool> lost = false;
  options.http.lost = [&lost] {
    lost = true;
    ::kill(::getpid(), SIGTERM);
  };

  std::vector<std::string> names;
  for (const auto& [name, script] : scripts) names.push_back(name);
  require_device(generation.device);
  const HarnessOptions opening = harness_options(options);
  std::unique_ptr<Harness> harness;
  std::error_code unreadable;
  if (std::filesystem::exists(opening.folder, unreadable)) harness = open_harness(opening, *log);  // before the model is loaded
  if (!opening.folder.empty()) {
    options.http.gate.authenticate = [&harness](const std::string& token) { return harness->service().authenticate(token); };
  }
  RateLimiter limiter(options.rates);
  options.http.gate.rate_limit = [&limiter](const HttpRequest& request, const HttpRoute& route) {
    return limiter.wait(request, route);
  };
  generation.token_for_completions = !opening.folder.empty() && !options.open_completions;
  generation.trouble = [&harness] { return harness ? harness->trouble() : std::string(); };
  GenerationApi api(std::move(generation), names);
  std::optional<mcp::McpServer> mcp;
  HttpServer server(std::move(options.http));
  server.bind();  // before there is a new folder: where the model or the address cannot be had none is left
  if (!opening.folder.empty() && harness == nullptr) harness = open_harness(opening, *log);
  api.add_routes(server);
  if (harness) {
    add_harness_routes(server, harness->service());
    add_web_routes(server);
    mcp.emplace(mcp::harness_tools(harness->service()), mcp::harness_instructions(),
                [&limiter](const HttpRequest& request, bool writes) { return limiter.take(request, writes); });
    mcp->add_routes(server);
    harness->start();
  }
  server.start();
  if (harness && !has_page()) log->warn("the page is not part of this program; {}/ says why", server.address());
  fmt::print("serving {}{} at {}\n", printable(api.model()), harness && has_page() ? " and a page for people" : "",
             server.address());
  std::fflush(stdout);
  StopSignal::wait();
  log->info("stopping");
  server.stop();
  api.engines().stop();
  if (lost) throw InternalError("the server lost the socket that it listened at");
}

}  // namespace

void add_serve(CLI::App& app) {
  constexpr int kMostThreads = 1024;
  constexpr int kMostRate = 1'000'000;
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand(
      "serve", "Serve a model over HTTP: OpenAI's endpoints, metrics and health; with --data also the harness for agents");
  command->footer("Example: sluice serve --port 8080 --data sluice-data --flow quest --flow streaming");
  CLI::Option* data =
      command
          ->add_option("--data", options->harness.folder,
                       "Folder of submissions and what became of them: agents may hand in flows (sluice agent add)")
          ->check([](const std::string& folder) { return folder.empty() ? "the folder's name is empty" : ""; }, "");
  command
      ->add_option(
          "--workers", options->harness.workers,
          "Submissions that are judged at once, each by a process of its own, on CUDA each on a GPU of its own (default: "
          "one a GPU, or one on the CPU)")
      ->check(decimal_number(1, 256))
      ->needs(data);
  command->add_option("--judge-seconds", options->harness.seconds, "Most that the judging of one submission may take")
      ->check(finite_number(1, 1e6))
      ->needs(data)
      ->capture_default_str();
  command
      ->add_option("--judge-mib", options->harness.flow_mib,
                   "Memory that judging a flow may take in a worker, beyond the model and the prompts")
      ->check(decimal_number(1, 1 << 20))
      ->needs(data)
      ->capture_default_str();
  command->add_option("--suite", options->harness.suite, "By which they are judged unless they say otherwise")
      ->check(CLI::IsMember({"verify", "quick", "full"}))
      ->needs(data)
      ->capture_default_str();
  options->http.port = 8080;
  command->add_option("--host", options->http.host, "Address to listen at")->capture_default_str();
  command->add_option("--port", options->http.port, "0: any that is free")
      ->check(decimal_number(0, 65535))
      ->capture_default_str();
  add_list(*command, "--allow-host", options->http.gate.host_names,
           "Names besides localhost under which this server is called; IP addresses need none")
      ->check(is_host_name, "");
  add_list(*command, "--allow-origin", options->http.gate.origins, "Other sites whose pages may call: https://example.org")
      ->check(is_origin, "");
  command
      ->add_option("--writes-per-minute", options->rates.writes_per_minute,
                   "Of each token's holder; completions count as reads; 0: no limit")
      ->check(decimal_number(0, kMostRate))
      ->capture_default_str();
  command
      ->add_option("--reads-per-second", options->rates.reads_per_second,
                   "Of each token's holder, and of each address without a token; 0: no limit")
      ->check(decimal_number(0, kMostRate))
      ->capture_default_str();
  CLI::Option* reading = command->add_flag("--token-for-reading", options->http.gate.token_for_reading,
                                           "Nothing is told without a token of --data, health and /v1/openapi.json excepted; "
                                           "the page for people sends none and shows nothing then");
  command
      ->add_flag("--open-completions", options->open_completions,
                 "Anybody may have text generated; without it, that needs a token where there is --data")
      ->excludes(reading);
  GenerationOptions& generation = options->generation;
  add_model(*command, generation.model);
  command->add_option("--device", generation.device, "cpu or cuda")->capture_default_str();
  command->add_option("--threads", generation.threads, "0: all cores")
      ->check(decimal_number(0, kMostThreads))
      ->capture_default_str();
  add_list(*command, "--flow", options->flows, "Flows that requests may name: files or shipped ones (default: all shipped)");
  command->add_option("--batch", generation.batch, "Requests of one flow that run at once; 0: 16, on CUDA 64")
      ->check(decimal_number(0, 1024))
      ->capture_default_str();
  command->add_option("--chunk", generation.chunk, "Tokens of prompts and answers in one pass; 0: 256, on CUDA 2048")
      ->check(decimal_number(0, 1 << 16))
      ->capture_default_str();
  command->add_option("--engines", generation.most_engines, "Flows, dense attention included, that have an engine at once")
      ->check(decimal_number(1, 64))
      ->capture_default_str();
  command
      ->add_option("--pool-mib", options->pool_mib,
                   "Size of the page pool of each engine; 0: 256, on CUDA an equal part of what is free")
      ->check(decimal_number(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--requests", generation.most_requests,
                   "Requests that may run and wait; more get 503, but for callers who have few")
      ->check(decimal_number(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--quiet", options->quiet, "Log errors alone, not every request");
  command->callback([options] { serve(*options); });
}

}  // namespace sluice::cli
