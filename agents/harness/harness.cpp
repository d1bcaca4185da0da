#include "agents/harness/harness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "agents/evaluation/suite.h"
#include "agents/orchestrator/worker_gpus.h"
#include "agents/tasks/vocabulary.h"
#include "agents/traces/attention_trace.h"
#include "host/weights/model_digest.h"
#include "host/weights/model_name.h"
#include "kernels/device.h"
#include "scripting/base/error.h"
#include "scripting/base/mapped_file.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kLineagePeriod{1};

/// The whole file or none, whenever the power goes.
void write_seed(const std::string& path, const Seed& seed) {
  const std::string next = path + ".new";
  const std::string hex = seed.hex() + "\n";
  const int descriptor = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool written = descriptor >= 0 && ::write(descriptor, hex.data(), hex.size()) == static_cast<ssize_t>(hex.size()) &&
                 ::fsync(descriptor) == 0;
  int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (written && std::rename(next.c_str(), path.c_str()) != 0) {
    written = false;
    error = errno;
  }
  if (!written) throw InputError(fmt::format("{} cannot be written: {}", path, std::strerror(error)));
}

std::string path_of_seed(const std::string& folder) { return folder + "/seed"; }

OrchestratorOptions orchestrator_options(const HarnessOptions& options, const store::Equipment& equipment, const Seed& seed,
                                         FlowInspector& inspector) {
  WorkerCommand command;
  command.program = options.program;
  command.arguments = {"worker",
                       "--model",
                       options.model,
                       "--device",
                       options.device,
                       "--threads",
                       std::to_string(options.threads),
                       "--flow-mib",
                       std::to_string(options.flow_mib)};
  if (options.device == "cuda") command.gpus = gpus_of_workers(visible_gpus(), options.workers);
  OrchestratorOptions orchestrator;
  orchestrator.workers = command.gpus.empty() ? std::max(1, options.workers) : static_cast<int>(command.gpus.size());
  orchestrator.start_worker = worker_processes(std::move(command));
  orchestrator.equipment = equipment;
  orchestrator.suite = options.suite;
  orchestrator.seconds = options.seconds;
  orchestrator.seed = seed;
  orchestrator.confirms = options.confirms;
  orchestrator.holds_out = true;
  orchestrator.check = [&inspector](const FlowScript& script) {
    const FlowInspection inspection = inspector.inspect(script);
    return CheckedFlow{inspection.fingerprint, artifacts_of(inspection)};
  };
  return orchestrator;
}

}  // namespace

std::optional<Seed> find_seed(const std::string& folder) {
  const std::string path = path_of_seed(folder);
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) return std::nullopt;
  std::istringstream file(read_text_file(path));  // which says why it cannot be read
  std::string text;
  if (file >> text && text.size() == 64) return Seed::parse(text);
  throw InputError(fmt::format("{} is no seed", path),
                   "restore it from a backup; without it remove it, and judge everything again: verdicts by another seed are "
                   "not comparable");
}

std::string database_of(const std::string& folder) { return folder + "/sluice.db"; }

namespace {

/// Throws InputError for a suite that the model cannot be asked.
const HarnessOptions& checked(const HarnessOptions& options) {
  const bool is_mini = load_vocabulary(options.model).has_value();
  if (options.suite == kEnglishSuite && is_mini) {
    throw InputError(fmt::format("{}: the suite {} is for models of natural language", options.model, kEnglishSuite),
                     "./dev model fetches one: --model smollm2");
  }
  const int positions = load_config(options.model).max_positions;
  const int longest = longest_context(load_suite(options.suite), is_mini);
  if (positions > 0 && longest > positions) {
    throw InputError(fmt::format("{}: the suite {} asks for contexts of {} tokens, and the model has {} positions", options.model,
                                 options.suite, longest, positions),
                     "choose another model or suite (--suite)");
  }
  return options;
}

}  // namespace

Harness::Harness(const HarnessOptions& options)
    : options_(checked(options)),
      folder_(options.folder),
      notices_(folder_.notices()),
      seed_(own_seed()),
      equipment_(own_equipment()),
      inspector_(options.model, options.device),
      service_(database_of(options.folder), service_options()) {}

Seed Harness::own_seed() {
  if (const auto known = find_seed(options_.folder)) return *known;
  const Seed seed = Seed::secret();
  write_seed(path_of_seed(options_.folder), seed);
  if (folder_.open_store().has_verdicts()) {
    notices_.push_back(
        fmt::format("{} was missing and is another now: verdicts from here on are not comparable with those before; "
                    "restore it from a backup, or judge everything again",
                    path_of_seed(options_.folder)));
  }
  return seed;
}

store::Equipment Harness::own_equipment() {
  store::Equipment equipment;
  if (!options_.model.empty()) equipment.model_digest = model_digest(options_.model);
  equipment.model = model_label(equipment.model_digest);
  equipment.device = options_.device;
  if (const int64_t others = folder_.open_store().count_waiting_for_others({equipment}); others > 0) {
    notices_.push_back(fmt::format("{} job{} in the queue {} not for {} on {}: a server with what {} for will judge {}", others,
                                   others == 1 ? "" : "s", others == 1 ? "is" : "are", equipment.model, equipment.device,
                                   others == 1 ? "it is" : "they are", others == 1 ? "it" : "them"));
  }
  return equipment;
}

std::string Harness::model_label(const std::string& digest) {
  constexpr size_t kTold = 8;
  const std::string name = model_name(options_.model);
  const std::vector<std::string> known = folder_.open_store().model_digests(name);
  const bool is_others = std::any_of(known.begin(), known.end(), [&](const std::string& other) { return other != digest; });
  const bool is_known = std::find(known.begin(), known.end(), digest) != known.end();
  return is_others && !is_known ? name + "@" + digest.substr(0, kTold) : name;
}

HarnessServiceOptions Harness::service_options() {
  HarnessServiceOptions service;
  service.suite = options_.suite;
  service.equipment = equipment_;
  service.seconds = options_.seconds;
  service.is_mini = load_vocabulary(options_.model).has_value();
  service.positions = load_config(options_.model).max_positions;
  service.inspect = [this](const FlowScript& script) { return document_of(inspector_.inspect(script)); };
  service.changed = [this] {
    if (orchestrator_) orchestrator_->wake();
  };
  return service;
}

Harness::~Harness() {
  orchestrator_.reset();
  lineage_keeper_ = {};  // once more, for the last verdicts
}

void Harness::start() {
  // Workers that cannot read it would be started for ever.
  if (const std::string trace = shipped_trace(); !trace.empty()) load_trace(trace);
  folder_.open_store().release_leases();  // of a server that was killed: this one alone has the folder
  orchestrator_.emplace(database_of(options_.folder), orchestrator_options(options_, equipment_, seed_, inspector_));
  lineage_keeper_ = std::jthread([this](const std::stop_token& stop) { keep_lineage(stop); });
}

void Harness::keep_lineage(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  int64_t seen = -1;
  for (bool last_time = false; !last_time;) {
    last_time = stop.stop_requested();
    try {
      store::Store store = folder_.open_store();
      const int64_t last = store.last_event();
      if (last != seen) {
        if (const std::string notice = folder_.sync_lineage(); !notice.empty()) spdlog::warn("{}", notice);
      }
      seen = last;
    } catch (const std::exception& error) {
      spdlog::error("lineage: {}", error.what());
    }
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, kLineagePeriod, [] { return false; });
  }
}

}  // namespace sluice
