#include "agents/generation/engine_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "agents/evaluation/trace_options.h"
#include "agents/generation/engine_maker.h"
#include "agents/generation/flow_engines.h"
#include "agents/http/http_problem.h"
#include "scripting/graph/plan.h"

namespace sluice {

EngineThread::EngineThread(GenerationOptions options, GenerationMetrics& metrics)
    : options_(std::move(options)),
      limits_(place_limits(options_.most_engines, options_.flows)),
      metrics_(metrics),
      config_(load_config(options_.model)),
      rules_(config_),
      plans_([this](const std::string& flow) {
        FlowGraph graph = options_.read_flow(flow, trace_options(config_));
        graph.geometry.kv = options_.kv.value_or(graph.geometry.kv);
        return compile(std::move(graph)).plan;
      }) {
  std::promise<void> loaded;
  std::future<void> ready = loaded.get_future();
  thread_ = std::thread([this, loaded = std::move(loaded)]() mutable {
    std::unique_ptr<Device> device;
    std::unique_ptr<Model> model;
    try {
      device = create_device(options_.device, options_.threads);
      model = load_model(options_.model, *device);
      const std::lock_guard lock(mutex_);
      taking_ = true;
    } catch (...) {
      loaded.set_exception(std::current_exception());
      return;
    }
    loaded.set_value();
    loop(*device, *model);
  });
  try {
    ready.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

EngineThread::~EngineThread() { stop(); }

void EngineThread::require_room(int tasks, const std::string& caller) const {
  if (!taking_) throw HttpProblem(503, "the server stops");
  const int most = options_.most_requests;
  if (unfinished_ + tasks <= most) return;
  // Kept for those who have few, so that nobody who has many shuts them out.
  const int few = std::max(1, most / 16);
  const bool has_few = places_.of(caller) + tasks <= few;
  if (has_few && unfinished_ + tasks <= most + most / 4) return;
  throw HttpProblem(503, fmt::format("{} requests run or wait, and no more are taken; try again later", unfinished_))
      .with_header("Retry-After", "1");
}

void EngineThread::check_room(int tasks, const std::string& caller) const {
  if (tasks > options_.most_requests) {
    throw HttpProblem(400, fmt::format("{} completions at once; this server takes at most {}", tasks, options_.most_requests));
  }
  const std::lock_guard lock(mutex_);
  require_room(tasks, caller);
}

/// Nothing that a request asks for is left out in silence.
void EngineThread::require_copies(const GenerationTask& task) {
  if (task.plan == nullptr || task.plan->takes_copies()) return;
  const char* const asks = !task.request.segments.empty()  ? "segments"
                           : task.request.answer_extra_key ? "answer_extra_key"
                                                           : nullptr;
  if (asks == nullptr) return;
  throw HttpProblem(400, fmt::format("flow \"{}\" has patterns, evictions, variants or masses of prompts: its prompts are all "
                                     "computed, and nobody else has its text; leave {} out, or choose another flow",
                                     task.plan->graph.name, asks))
      .with("param", asks);
}

std::vector<uint64_t> EngineThread::submit(std::vector<GenerationTask> tasks) {
  if (tasks.empty()) return {};
  const std::string caller = tasks.front().caller;
  for (GenerationTask& task : tasks) {
    if (!task.flow.empty()) task.plan = plans_.get(task.flow, caller);
    require_copies(task);
    const bool is_named = !task.recompute.rule.empty();
    if ((task.request.segments.empty() && !is_named) || task.request.freeze) continue;
    try {
      task.request.recompute = rules_.find(task.recompute, task.plan.get());
    } catch (const InputError& error) {
      const std::string& hint = error.hint();
      throw HttpProblem(400, fmt::format("recompute: {}{}{}", error.what(), hint.empty() ? "" : "; ", hint))
          .with("param", "recompute");
    }
  }
  const std::lock_guard lock(mutex_);
  require_room(static_cast<int>(tasks.size()), caller);
  std::vector<uint64_t> ids;
  for (GenerationTask& task : tasks) {
    LiveTask live;
    live.id = ++last_id_;
    live.prompt_tokens = static_cast<int>(task.request.prompt.size());
    for (const Segment& segment : task.request.segments) live.marked_tokens += segment.end - segment.first;
    live.arrival = GenerationClock::now();
    live.place = places_.take(caller);
    live.task = std::move(task);
    live.task.request.caller = std::hash<std::string>()(caller);
    ids.push_back(live.id);
    mail_.tasks.push_back(std::move(live));
  }
  unfinished_ += static_cast<int>(tasks.size());
  changed_.notify_one();
  return ids;
}

void EngineThread::cancel(uint64_t id, bool stopped) {
  const std::lock_guard lock(mutex_);
  mail_.cancellations.push_back({id, stopped});
  changed_.notify_one();
}

void EngineThread::order(std::function<void(FlowEngines&)> work) {
  std::packaged_task<void(FlowEngines&)> task(std::move(work));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (!taking_) throw HttpProblem(503, "the server stops");
    mail_.orders.push_back(std::move(task));
    changed_.notify_one();
  }
  try {
    done.get();
  } catch (const std::future_error&) {  // the thread ended before
    throw HttpProblem(503, "the server stops");
  }
}

std::vector<FrozenText> EngineThread::frozen_texts() {
  std::vector<FrozenText> texts;
  order([&](FlowEngines& engines) { texts = engines.frozen_texts(); });
  return texts;
}

bool EngineThread::thaw(uint64_t id) {
  bool is_done = false;
  order([&](FlowEngines& engines) { is_done = engines.thaw(id); });
  return is_done;
}

void EngineThread::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    taking_ = false;
    mail_.stop = true;
    changed_.notify_one();
  }
  thread_.join();
}

bool EngineThread::ready() const {
  const std::lock_guard lock(mutex_);
  return taking_;
}

void EngineThread::loop(Device& device, const Model& model) {
  EngineMaker maker(options_, device, model, metrics_, [this] {
    const std::lock_guard lock(mutex_);
    mail_.changed = true;
    changed_.notify_one();
  });
  FlowEngines engines(options_, limits_, maker, metrics_, [this](int count) {
    const std::lock_guard lock(mutex_);
    unfinished_ -= count;
  });
  for (;;) {
    TaskMail mail = take_mail(engines);
    for (LiveTask& live : mail.tasks) engines.add(std::move(live));
    for (const TaskMail::Cancellation& cancellation : mail.cancellations) engines.cancel(cancellation);
    for (std::packaged_task<void(FlowEngines&)>& order : mail.orders) order(engines);
    if (mail.stop) break;
    engines.take_turn();
  }
  engines.fail_all(503, "the server stops");
  engines.publish(true);
}

TaskMail EngineThread::take_mail(FlowEngines& engines) {
  constexpr std::chrono::milliseconds kBetweenGauges(100);
  const bool others_run = engines.others_run();
  const bool is_idle = engines.has_nothing_to_do(others_run);
  if (is_idle) engines.publish(!others_run);
  std::unique_lock lock(mutex_);
  const GenerationClock::duration most = options_.idle;
  if (is_idle) changed_.wait_for(lock, others_run ? kBetweenGauges : most, [&] { return !mail_.empty(); });
  return std::exchange(mail_, {});
}

}  // namespace sluice
