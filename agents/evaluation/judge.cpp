#include "agents/evaluation/judge.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "agents/evaluation/documents.h"
#include "agents/evaluation/holdout.h"
#include "agents/evaluation/reuse_runner.h"
#include "host/serving/engine.h"

namespace sluice {
namespace {

/// Does `what` at the end of a block, however it is left.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> what) : what_(std::move(what)) {}
  ~AtEnd() { what_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  std::function<void()> what_;
};

}  // namespace

Judge::Judge(std::string path, const std::string& device, int threads, size_t cache_bytes, const std::string& traces)
    : path_(std::move(path)),
      config_(load_config(path_)),
      device_(create_device(device, threads)),
      vocabulary_(load_vocabulary(path_)),
      cache_bytes_(cache_bytes) {
  if (!traces.empty()) traces_.emplace(*device_, load_trace(traces), threads);
}

Report Judge::blank_report() const {
  Report report;
  report.device = device_->info().name;
  report.device_description = device_->info().description;
  report.model = path_;
  report.dialect = vocabulary_ ? "mini" : "english";
  return report;
}

const TaskContext& Judge::context() {
  if (!context_) {
    tokenizer_ = load_tokenizer(path_);
    chat_ = load_chat_template(path_);
    const MiniVocabulary* mini = vocabulary_ ? &*vocabulary_ : nullptr;
    context_.emplace(TaskContext{*tokenizer_, mini, config_.max_positions, config_.vocabulary, chat_.get()});
  }
  return *context_;
}

void Judge::prepare(Suite& suite) {
  if (device_->info().name == "cpu" && suite.fewer_on_cpu > 1) {
    for (SuiteStage& stage : suite.stages) {
      for (SuiteTask& task : stage.tasks) {
        if (!task.is_problem_set()) task.samples = std::max(1, task.samples / suite.fewer_on_cpu);
      }
    }
  }
  const AtEnd forget([this] { texts_.forget_files(); });
  prepare_suite(suite, context(), texts_);
}

Suite Judge::holdout(const Suite& prepared, const Seed& kinds) {
  Suite held_out = holdout_of(prepared, kinds, !context().english());
  const auto cannot_be_asked = [&](const SuiteTask& task) {
    Suite alone = held_out;
    alone.stages = {{kHoldout, 0, {task}}};
    try {
      prepare(alone);
      return false;
    } catch (const InputError&) {  // a text that short has no room for it, or the tokenizer no words
      return true;
    }
  };
  for (SuiteStage& stage : held_out.stages) std::erase_if(stage.tasks, cannot_be_asked);
  std::erase_if(held_out.stages, [](const SuiteStage& stage) { return stage.tasks.empty(); });
  prepare(held_out);
  return held_out;
}

void Judge::load() {
  if (model_ != nullptr) return;
  context();
  auto model = load_model(path_, *device_);
  check(*model);
  model_ = std::move(model);
  runner_.emplace(*device_, *model_, *tokenizer_, traces_ ? &*traces_ : nullptr);
  cache_.emplace(*runner_, cache_bytes_);
}

void Judge::check(const Model& model) {
  EngineOptions options;
  options.pages = options.max_batch = options.max_pass_tokens = 1;
  Engine engine(*device_, model, nullptr, options);
  Request request;
  request.prompt = {0};
  request.max_tokens = 1;
  engine.submit(std::move(request));
  engine.run_all();
}

Report Judge::judge(const Suite& suite, const std::vector<Contestant>& contestants, const Seed& seed, Progress& progress,
                    bool keeps) {
  load();
  const AtEnd forget([this] { runner_->forget(); });
  std::optional<ReuseRunner> reusing;
  if (suite.reuse) reusing.emplace(*device_, *model_, *tokenizer_, *suite.reuse);
  Runner& own = keeps ? static_cast<Runner&>(*cache_) : *runner_;
  Runner& runner = reusing ? *reusing : own;
  Report report = run_cascade(suite, contestants, runner, context(), seed, progress);
  const Report about = blank_report();
  report.device = about.device;
  report.device_description = about.device_description;
  report.model = about.model;
  return report;
}

}  // namespace sluice
