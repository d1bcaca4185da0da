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
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "agents/evaluation/judge.h"
#include "agents/evaluation/metric_table.h"
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

OrchestratorOptions orchestrator_options(const HarnessOptions& options, JudgingModel& model, const Seed& seed,
                                         const std::optional<store::FinalRun>& finals) {
  WorkerCommand command;
  command.program = options.program;
  command.arguments = {"worker",
                       "--model",
                       model.path,
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
  orchestrator.equipment = model.equipment;
  orchestrator.suite = model.suite;
  orchestrator.seconds = options.seconds;
  orchestrator.seed = seed;
  orchestrator.finals = finals;
  orchestrator.confirms = options.confirms;
  orchestrator.holds_out = true;
  orchestrator.check = [&model](const FlowScript& script) {
    const FlowInspection inspection = model.inspector.inspect(script);
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

/// Throws InputError for a suite that the model cannot be asked; `option` names the suite.
void check_suite(const std::string& model, const std::string& suite, const char* option) {
  const bool is_mini = load_vocabulary(model).has_value();
  if (suite == kEnglishSuite && is_mini) {
    throw InputError(fmt::format("{}: the suite {} is for models of natural language", model, kEnglishSuite),
                     "./dev model fetches one: --model smollm2");
  }
  const int positions = load_config(model).max_positions;
  const int longest = longest_context(load_suite(suite), is_mini);
  if (positions > 0 && longest > positions) {
    throw InputError(fmt::format("{}: the suite {} asks for contexts of {} tokens, and the model has {} positions", model, suite,
                                 longest, positions),
                     fmt::format("choose another model or suite ({})", option));
  }
}

std::string final_suite(const HarnessOptions& options) {
  if (!options.final_suite.empty()) return options.final_suite;
  return load_vocabulary(options.final_model) ? "standard" : kEnglishSuite;
}

/// No submission names its suite, so that whatever could be wrong with it is found before the first is there.
void check_final(const HarnessOptions& options) {
  if (model_digest(options.final_model) == model_digest(options.model)) {
    throw InputError(fmt::format("{}: the final model is the one that judges first", options.final_model),
                     "name another one by --final-model, or leave it out");
  }
  const std::string suite = final_suite(options);
  check_suite(options.final_model, suite, "--final-suite");
  Suite asked = load_suite(suite);
  Judge(options.final_model, options.device, options.threads).prepare(asked);
}

const HarnessOptions& checked(const HarnessOptions& options) {
  check_suite(options.model, options.suite, "--suite");
  if (!options.final_model.empty()) check_final(options);
  return options;
}

}  // namespace

Harness::Harness(const HarnessOptions& options)
    : options_(checked(options)),
      folder_(options.folder),
      notices_(folder_.notices()),
      seed_(own_seed()),
      first_(judging(options.model, options.suite)),
      last_(final_judging()),
      service_(database_of(options.folder), service_options()) {
  tell_what_waits_for_others();
}

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

std::unique_ptr<JudgingModel> Harness::judging(const std::string& path, const std::string& suite, const std::string& taken) {
  store::Equipment equipment;
  equipment.model_digest = model_digest(path);
  equipment.model = model_label(path, equipment.model_digest, taken);
  equipment.device = options_.device;
  return std::make_unique<JudgingModel>(path, suite, std::move(equipment));
}

std::unique_ptr<JudgingModel> Harness::final_judging() {
  return options_.final_model.empty() ? nullptr : judging(options_.final_model, final_suite(options_), first_->equipment.model);
}

std::vector<store::Equipment> Harness::equipments() const {
  std::vector<store::Equipment> all = {first_->equipment};
  if (last_) all.push_back(last_->equipment);
  return all;
}

std::optional<store::FinalRun> Harness::final_run() const {
  if (!last_) return std::nullopt;
  const nlohmann::json settings = {{"suite", last_->suite},
                                   {"model", last_->equipment.model},
                                   {"model_digest", last_->equipment.model_digest},
                                   {"device", last_->equipment.device}};
  return store::FinalRun{first_->equipment, settings.dump(), metrics::kScore.name, first_->suite};
}

void Harness::tell_what_waits_for_others() {
  const int64_t others = folder_.open_store().count_waiting_for_others(equipments());
  if (others == 0) return;
  const std::string models = last_ ? first_->equipment.model + " or " + last_->equipment.model : first_->equipment.model;
  notices_.push_back(fmt::format("{} job{} in the queue {} not for {} on {}: a server with what {} for will judge {}", others,
                                 others == 1 ? "" : "s", others == 1 ? "is" : "are", models, options_.device,
                                 others == 1 ? "it is" : "they are", others == 1 ? "it" : "them"));
}

std::string Harness::model_label(const std::string& path, const std::string& digest, const std::string& taken) {
  constexpr size_t kTold = 8;
  const std::string name = model_name(path);
  const std::vector<std::string> known = folder_.open_store().model_digests(name);
  const bool is_others =
      name == taken || std::any_of(known.begin(), known.end(), [&](const std::string& other) { return other != digest; });
  const bool is_known = std::find(known.begin(), known.end(), digest) != known.end();
  return is_others && !is_known ? name + "@" + digest.substr(0, kTold) : name;
}

HarnessServiceOptions Harness::service_options() {
  HarnessServiceOptions service;
  service.suite = options_.suite;
  service.equipment = first_->equipment;
  if (last_) service.final_equipment = last_->equipment;
  service.seconds = options_.seconds;
  service.is_mini = load_vocabulary(options_.model).has_value();
  service.positions = load_config(options_.model).max_positions;
  service.inspect = [this](const FlowScript& script) { return document_of(first_->inspector.inspect(script)); };
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
  const std::optional<store::FinalRun> finals = final_run();
  store::Store store = folder_.open_store();
  store.release_leases();  // of a server that was killed: this one alone has the folder
  if (finals) store.ask_finals(*finals);
  std::optional<OrchestratorOptions> last;
  if (last_) last = orchestrator_options(options_, *last_, seed_, finals);
  orchestrator_.emplace(database_of(options_.folder), orchestrator_options(options_, *first_, seed_, finals), std::move(last));
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
