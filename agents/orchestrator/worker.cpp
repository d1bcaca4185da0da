#include "agents/orchestrator/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "agents/evaluation/judge.h"
#include "agents/evaluation/memory_limit.h"
#include "agents/orchestrator/line_pipe.h"
#include "agents/orchestrator/worker_messages.h"
#include "host/weights/model_digest.h"
#include "scripting/base/resource_error.h"

namespace sluice {
namespace {

/// Passes on how far a job is; nobody needs to know more often than anything changes.
class PipedProgress final : public Progress {
 public:
  explicit PipedProgress(int out) : out_(out) {}

  void start(double work) override { total_ = work; }
  void show(const std::string& stage, const std::string& task, const std::string& /*flow*/) override {
    if (stage == stage_ && task == task_) return;
    stage_ = stage;
    task_ = task;
    const double share = total_ > 0 ? std::clamp(done_ / total_, 0.0, 1.0) : 0;
    write_line(out_, to_line(WorkerProgress{stage, task, share}));
  }
  void advance(double work) override { done_ += work; }
  void shrink(double work) override { total_ = std::max(done_, total_ - work); }
  void finish() override {}

 private:
  int out_;
  double total_ = 0;
  double done_ = 0;
  std::string stage_;
  std::string task_;
};

/// The model that judges, and what tells it from others: in its directory may be another one than when the server started.
struct LoadedModel {
  Judge& judge;
  std::string directory;
  std::string digest = {};  // once it is loaded
};

/// A model that cannot be loaded any more, or is another one, is the server's to put right, whatever is judged with it.
void load_model(LoadedModel& model) {
  try {
    if (!model.digest.empty()) return;
    const std::string before = model_digest(model.directory);
    model.judge.load();
    if (model_digest(model.directory) != before) throw InputError("it changed meanwhile");
    model.digest = before;
  } catch (const DeviceMemoryError& error) {
    throw ResourceError(fmt::format("no memory is left for the model: {}", error.what()));
  } catch (const InputError& error) {
    throw ResourceError(fmt::format("the model cannot be loaded: {}", error.what()));
  }
}

/// All that a job needs before anybody looks at its flow, which is then no cause of what is lacking.
Suite prepared(LoadedModel& model, const WorkerJob& job) {
  try {
    load_model(model);
    if (!job.model_digest.empty() && job.model_digest != model.digest) {
      throw ResourceError(fmt::format("{} holds another model than the one that is to judge", model.directory));
    }
    Suite suite = job.load();
    model.judge.prepare(suite);
    return job.kinds ? model.judge.holdout(suite, *job.kinds) : suite;
  } catch (const std::bad_alloc&) {
    throw ResourceError("no memory is left for the model and the suite");
  }
}

WorkerMessage judged(LoadedModel& model, const WorkerJob& job, const WorkerOptions& options, MemoryLimit& limit, int out) {
  try {
    const Suite suite = prepared(model, job);
    limit.allow(options.flow_bytes + options.cache_bytes + memory_of_batches(suite, model.judge.config()));
    PipedProgress progress(out);
    const Contestant contestant{job.name, {job.name + ".lua", job.script}};
    return WorkerReport{to_json(model.judge.judge(suite, {contestant}, job.seed, progress, job.is_seed_kept))};
  } catch (const InputError& error) {
    return WorkerFailure{error.what(), error.hint()};
  } catch (const std::exception& error) {
    if (!is_lack(error)) throw;
    return WorkerFailure{error.what(), {}, true};
  }
}

}  // namespace

void run_worker(const WorkerOptions& options, int in, int out) {
  Judge judge(options.model, options.device, options.threads, options.cache_bytes);
  LoadedModel model{judge, options.model};
  const Report about = judge.blank_report();
  write_line(out, to_line(WorkerReady{about.device, about.device_description, about.model}));
  MemoryLimit limit;
  LineReader jobs(in, kMostMessageBytes);
  std::string line;
  while (jobs.next(line) == LineReader::Outcome::kLine) {
    if (!write_line(out, to_line(judged(model, parse_job(line), options, limit, out)))) return;
  }
}

}  // namespace sluice
