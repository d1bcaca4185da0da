#include "agents/evaluation/judge.h"

#include <utility>

#include "agents/evaluation/documents.h"
#include "host/serving/engine.h"

namespace sluice {

Judge::Judge(std::string directory, const std::string& device, int threads, size_t cache_bytes)
    : directory_(std::move(directory)),
      config_(load_config(directory_)),
      device_(create_device(device, threads)),
      vocabulary_(load_vocabulary(directory_)),
      cache_bytes_(cache_bytes) {}

Report Judge::blank_report() const {
  Report report;
  report.device = device_->info().name;
  report.device_description = device_->info().description;
  report.model = directory_;
  report.dialect = vocabulary_ ? "mini" : "english";
  return report;
}

const TaskContext& Judge::context() {
  if (!context_) {
    tokenizer_ = load_tokenizer(directory_);
    chat_ = load_chat_template(directory_);
    context_.emplace(TaskContext{*tokenizer_, vocabulary_ ? &*vocabulary_ : nullptr, config_.max_positions, chat_.get()});
  }
  return *context_;
}

void Judge::prepare(Suite& suite) { prepare_suite(suite, context()); }

void Judge::load() {
  if (model_ != nullptr) return;
  context();
  auto model = load_model(directory_, *device_);
  check(*model);
  model_ = std::move(model);
  runner_.emplace(*device_, *model_, *tokenizer_);
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

Report Judge::judge(const Suite& suite, const std::vector<Contestant>& contestants, const Seed& seed, Progress& progress) {
  load();
  Report report = run_cascade(suite, contestants, *cache_, context(), seed, progress);
  const Report about = blank_report();
  report.device = about.device;
  report.device_description = about.device_description;
  report.model = about.model;
  return report;
}

}  // namespace sluice
