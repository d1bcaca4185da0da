#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agents/harness/flow_inspector.h"
#include "agents/harness/harness_service.h"
#include "agents/orchestrator/orchestrator.h"
#include "store/folder/data_folder.h"

namespace sluice {

struct HarnessOptions {
  std::string folder;  // of the data
  std::string model;   // its path
  std::string device = "cpu";
  int threads = 0;                         // of each worker; 0: all cores
  int workers = 0;                         // 0: one a GPU, or one on the CPU
  std::string suite = "quick";             // where a submission names none
  std::string final_model = {};            // path of the one that judges once more what passed; empty: none does
  std::string final_suite = {};            // by which it does; empty: "real", or "standard" for one with the mini dialect
  double seconds = 900;                    // most of one evaluation
  bool confirms = true;                    // by itself, what enters the front of score and speed
  int flow_mib = 1024;                     // memory that judging a flow may take beyond the model and the prompts
  std::string program = "/proc/self/exe";  // that workers are
};

/// A model that judges, and what looks at scripts for it.
struct JudgingModel {
  JudgingModel(std::string model, std::string asked, store::Equipment own)
      : path(std::move(model)), suite(std::move(asked)), equipment(std::move(own)), inspector(path, equipment.device) {}

  const std::string path;
  const std::string suite;
  const store::Equipment equipment;
  FlowInspector inspector;
};

/// Everything behind the harness of one data folder: the store, the service, the orchestrator with its workers, and the Git
/// repository, which follows the store.
class Harness {
 public:
  /// Opens the folder, making or mending what is missing. Throws StoreError, InputError for a model that is not there, or cannot
  /// be asked what its suite asks, and for a seed that cannot be read.
  explicit Harness(const HarnessOptions& options);
  /// Ends workers; what they were at is judged later.
  ~Harness();
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  HarnessService& service() { return service_; }
  /// What a person should know of how the folder was opened.
  const std::vector<std::string>& notices() const { return notices_; }
  /// Why nothing can be kept at the moment, or "". May be called by any thread.
  std::string trouble() const { return folder_.trouble(); }
  /// Begins to judge.
  void start();

 private:
  void keep_lineage(const std::stop_token& stop);

  HarnessServiceOptions service_options();
  /// `taken` is what another one is called, which may have judged nothing yet.
  std::unique_ptr<JudgingModel> judging(const std::string& path, const std::string& suite, const std::string& taken = {});
  std::unique_ptr<JudgingModel> final_judging();
  std::vector<store::Equipment> equipments() const;
  /// How what passed is judged once more; nothing if there is no model for it.
  std::optional<store::FinalRun> final_run() const;
  void tell_what_waits_for_others();
  /// What all submissions of this folder are judged by, from its first day on: readable by nobody else.
  Seed own_seed();
  /// How a model is called here: by its path's last name, and by some of its digest where another had that name first.
  std::string model_label(const std::string& path, const std::string& digest, const std::string& taken);

  HarnessOptions options_;
  store::DataFolder folder_;
  std::vector<std::string> notices_;
  Seed seed_;
  const std::unique_ptr<JudgingModel> first_;
  const std::unique_ptr<JudgingModel> last_;  // of finals, if there are any
  HarnessService service_;
  std::optional<Orchestrator> orchestrator_;
  std::jthread lineage_keeper_;
};

/// The seed by which all submissions of a data folder are judged; nothing if it has none yet. Throws InputError if it is no seed,
/// or cannot be read.
std::optional<Seed> find_seed(const std::string& folder);

/// The database of a data folder.
std::string database_of(const std::string& folder);

}  // namespace sluice
