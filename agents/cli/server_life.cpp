#include "agents/cli/server_life.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/trace_options.h"
#include "agents/harness/harness_routes.h"
#include "agents/http/descriptor_budget.h"
#include "agents/mcp/harness_tools.h"
#include "agents/web/web_files.h"
#include "agents/web/web_routes.h"
#include "host/weights/model_path.h"
#include "kernels/cuda/codegen/refusal.h"
#include "kernels/device.h"
#include "kernels/device/device_refusal.h"
#include "scripting/base/error.h"
#include "scripting/base/printable_text.h"
#include "store/error.h"

namespace sluice::cli {

namespace {

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

std::vector<std::string> names_of(const std::map<std::string, FlowScript>& scripts) {
  std::vector<std::string> names;
  for (const auto& [name, script] : scripts) names.push_back(name);
  return names;
}

HarnessOptions harness_options(const ServeOptions& options) {
  HarnessOptions harness = options.harness;
  harness.model = options.generation.model;
  if (!harness.final_model.empty()) harness.final_model = model_path(harness.final_model);
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
  const size_t models = options.harness.final_model.empty() ? 1 : 2;
  return kOfServer + kOfWorker * models * workers + (is_on_gpus ? kOfGpus : 0);
}

/// Whether a worker has the GPU that completions run on: workers take them from the last on (gpus_of_workers).
bool judges_where_it_generates(const ServeOptions& options) {
  if (options.harness.folder.empty() || options.generation.device != "cuda") return false;
  return options.harness.workers == 0 || static_cast<size_t>(options.harness.workers) >= visible_gpus().size();
}

/// Makes the process one that serves, and fills in what `options` leave open.
ServeOptions prepared(ServeOptions options) {
  leave_descriptors(options.http, allow_many_files(), kept_descriptors(options));
  std::signal(SIGPIPE, SIG_IGN);
  GenerationOptions& generation = options.generation;
  generation.model = model_path(generation.model);
  generation.pool_bytes = static_cast<size_t>(options.pool_mib) << 20;
  generation.shares_device = judges_where_it_generates(options);
  return options;
}

/// Everybody's.
std::shared_ptr<spdlog::logger> make_log(bool quiet) {
  auto log = std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_level(quiet ? spdlog::level::err : spdlog::level::info);
  spdlog::set_default_logger(log);
  return log;
}

}  // namespace

ServerLife::ServerLife(ServeOptions options)
    : options_(prepared(std::move(options))),
      scripts_(read_flows(options_, load_config(options_.generation.model))),
      submitted_(submitted_flows()),
      log_(make_log(options_.quiet)),
      harness_(existing_harness()),
      limiter_(options_.rates),
      api_(generation_options(), names_of(scripts_)),
      server_(http_options()) {
  server_.bind();
  if (has_folder() && harness_ == nullptr) harness_ = open_harness(harness_options(options_), *log_);
  add_routes();
}

std::unique_ptr<SubmittedFlows> ServerLife::submitted_flows() const {
  return has_folder() ? std::make_unique<SubmittedFlows>(database_of(options_.harness.folder)) : nullptr;
}

std::unique_ptr<Harness> ServerLife::existing_harness() {
  require_device(options_.generation.device);
  std::error_code unreadable;
  if (!std::filesystem::exists(options_.harness.folder, unreadable)) return nullptr;
  return open_harness(harness_options(options_), *log_);
}

GenerationOptions ServerLife::generation_options() {
  GenerationOptions generation = options_.generation;
  if (has_folder()) {
    generation.check_flow = [this](const std::string& name) { submitted_->check(name); };
  } else {
    generation.flows = static_cast<int>(scripts_.size());
  }
  generation.read_flow = [this](const std::string& name, const TraceOptions& trace) {
    const auto script = scripts_.find(name);
    return (script != scripts_.end() ? script->second : submitted_->script(name)).trace(trace);
  };
  generation.log = log_;
  generation.token_for_completions = has_folder() && !options_.open_completions;
  generation.of_agents = has_folder();
  generation.trouble = [this] { return harness_ ? harness_->trouble() : std::string(); };
  return generation;
}

HttpServerOptions ServerLife::http_options() {
  HttpServerOptions http = options_.http;
  http.log = log_;
  http.lost = [this] {
    lost_ = true;
    ::kill(::getpid(), SIGTERM);
  };
  if (has_folder()) {
    http.gate.authenticate = [this](const std::string& token) { return harness_->service().authenticate(token); };
  }
  http.gate.rate_limit = [this](const HttpRequest& request, const HttpRoute& route) { return limiter_.wait(request, route); };
  return http;
}

void ServerLife::add_routes() {
  api_.add_routes(server_);
  if (!harness_) return;
  add_harness_routes(server_, harness_->service());
  add_web_routes(server_);
  mcp_.emplace(mcp::harness_tools(harness_->service()), mcp::harness_instructions(),
               [this](const HttpRequest& request, bool writes) { return limiter_.take(request, writes); });
  mcp_->add_routes(server_);
}

void ServerLife::start() {
  if (harness_) harness_->start();
  server_.start();
  if (harness_ && !has_page()) log_->warn("the page is not part of this program; {}/ says why", server_.address());
  fmt::print("serving {}{} at {}\n", printable(api_.model()), harness_ && has_page() ? " and a page for people" : "",
             server_.address());
  std::fflush(stdout);
}

void ServerLife::stop() {
  log_->info("stopping");
  server_.stop();
  api_.engines().stop();
}

void ServerLife::run() {
  start();
  StopSignal::wait();
  stop();
  if (lost_) throw InternalError("the server lost the socket that it listened at");
}

}  // namespace sluice::cli
