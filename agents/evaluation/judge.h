#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/evaluation/caching_runner.h"
#include "agents/evaluation/cascade.h"
#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/trace_judge.h"
#include "agents/tasks/vocabulary.h"
#include "host/text/chat_template.h"
#include "host/text/tokenizer.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

/// A model on a device, and the cascade over it. What is dear is loaded when it is first needed: the tokenizer for suites, the
/// weights for judging. What dense attention did is kept for later calls with the same seed. Owned by one thread.
class Judge {
 public:
  /// `path` is a model's; `traces` is the directory of a trace, by default of the shipped one, if there is any; it is read here.
  /// Throws InputError for a model or a device that is not there, and for a trace that is damaged.
  Judge(std::string path, const std::string& device, int threads, size_t cache_bytes = 0,
        const std::string& traces = shipped_trace());

  const ModelConfig& config() const { return config_; }
  Device& device() { return *device_; }

  /// What every report of this judge says: device, model, dialect.
  Report blank_report() const;
  /// Reads the problem sets and texts of `suite`, tries its tasks, and settles how many samples they have on the device. Throws
  /// InputError.
  void prepare(Suite& suite);
  /// What nobody is told of beside a prepared suite (holdout.h), prepared, without tasks that the model cannot be asked.
  Suite holdout(const Suite& prepared, const Seed& kinds);
  /// Reads the weights, unless they are there. Throws InputError for what cannot be read, or is damaged.
  void load();
  /// Judges by a prepared suite, once the weights are there. Without `keeps` nothing that dense attention does is kept, nor taken
  /// from what is: of a seed that is used once it would only be in the way. Throws InputError for weights that cannot be read, or
  /// that are damaged.
  Report judge(const Suite& suite, const std::vector<Contestant>& contestants, const Seed& seed, Progress& progress,
               bool keeps = true);

 private:
  const TaskContext& context();
  /// One step with dense attention: damaged weights are found before any flow is judged.
  void check(const Model& model);

  std::string path_;
  ModelConfig config_;
  std::unique_ptr<Device> device_;
  std::optional<MiniVocabulary> vocabulary_;
  size_t cache_bytes_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_;
  std::optional<TaskContext> context_;
  TextReader texts_;
  std::unique_ptr<Model> model_;
  std::optional<TraceJudge> traces_;
  std::optional<EngineRunner> runner_;
  std::optional<CachingRunner> cache_;
};

}  // namespace sluice
