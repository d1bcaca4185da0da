#include "agents/generation/engine_thread.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "agents/server/http_problem.h"
#include "agents/trace_options.h"
#include "scripting/graph/error.h"
#include "scripting/graph/plan.h"

namespace sluice {

EngineOptions options_of_engine(const GenerationOptions& options, const DeviceInfo& device, const EngineRoom& room) {
  constexpr size_t kGiB = size_t{1} << 30;
  constexpr size_t kBeside = kGiB;       // of an engine on CUDA: activations, what its flow computes, recorded steps
  constexpr size_t kJudging = 8 * kGiB;  // of a process that judges, beside the model's weights
  constexpr size_t kStates = 5 * kGiB;   // of a flow, beside a pool whose size is given
  EngineOptions engine;
  const bool cuda = device.name == "cuda";
  engine.max_batch = cuda ? 64 : 16;
  if (cuda) engine.max_pass_tokens = 2048;
  if (options.pool_bytes > 0) {
    engine.pool_bytes = options.pool_bytes;
    if (cuda) engine.state_bytes = options.pool_bytes + kStates;
  } else if (cuda) {
    const size_t spare = options.shares_device ? room.weight_bytes + kJudging : 0;
    const size_t share =
        (room.free_bytes - std::min(room.free_bytes, spare)) / static_cast<size_t>(std::max(1, room.engines_to_come));
    const size_t left = share - std::min(share, kBeside);
    engine.state_bytes = std::max(left / 2, engine.pool_bytes);
    engine.pool_bytes = std::max(room.keeps_state ? left / 2 : left, engine.pool_bytes);
  }
  if (options.batch > 0) engine.max_batch = options.batch;
  if (options.chunk > 0) engine.max_pass_tokens = options.chunk;
  engine.max_pass_tokens = std::max(engine.max_pass_tokens, engine.max_batch);
  return engine;
}

EngineThread::EngineThread(GenerationOptions options, GenerationMetrics& metrics)
    : options_(std::move(options)), metrics_(metrics), config_(load_config(options_.model)) {
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
    slots_.clear();  // before what they refer to
  });
  try {
    ready.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

EngineThread::~EngineThread() { stop(); }

void EngineThread::require_room(int tasks) const {
  if (!taking_) throw HttpProblem(503, "the server stops");
  if (unfinished_ + tasks > options_.most_requests) {
    throw HttpProblem(503, fmt::format("{} requests run or wait, and no more are taken; try again later", unfinished_))
        .with_header("Retry-After", "1");
  }
}

void EngineThread::check_room(int tasks) const {
  if (tasks > options_.most_requests) {
    throw HttpProblem(400, fmt::format("{} completions at once; this server takes at most {}", tasks, options_.most_requests));
  }
  const std::lock_guard lock(mutex_);
  require_room(tasks);
}

std::vector<uint64_t> EngineThread::submit(std::vector<GenerationTask> tasks) {
  const std::lock_guard lock(mutex_);
  require_room(static_cast<int>(tasks.size()));
  std::vector<uint64_t> ids;
  for (GenerationTask& task : tasks) {
    LiveTask live;
    live.id = ++last_id_;
    live.prompt_tokens = static_cast<int>(task.request.prompt.size());
    live.arrival = GenerationClock::now();
    live.task = std::move(task);
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
  for (;;) {
    Mail mail = take_mail();
    for (LiveTask& task : mail.tasks) waiting_.push_back(std::move(task));
    for (const Cancellation& cancellation : mail.cancellations) cancel_now(cancellation);
    if (mail.stop) break;
    admit(device, model);
    step_all();
    drop_idle();
    publish(false);
  }
  fail_everything(503, "the server stops");
  publish(true);
}

EngineThread::Mail EngineThread::take_mail() {
  const bool busy = std::any_of(slots_.begin(), slots_.end(), [](const EngineSlot& slot) { return slot.busy(); });
  // A slot that has just become idle, or failed, is one that the next task may have been waiting for.
  const bool is_idle = !busy && waiting_.empty();
  if (is_idle) publish(true);
  std::unique_lock lock(mutex_);
  const auto arrived = [&] { return mail_.stop || !mail_.tasks.empty() || !mail_.cancellations.empty(); };
  if (is_idle) changed_.wait_for(lock, options_.idle, arrived);
  return std::exchange(mail_, {});
}

void EngineThread::cancel_now(const Cancellation& cancellation) {
  for (EngineSlot& slot : slots_) {
    if (slot.cancel(cancellation.id, cancellation.stopped)) return;
  }
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) { return live.id == cancellation.id; });
  if (found == waiting_.end()) return;  // it has just ended
  metrics_.abandoned();
  waiting_.erase(found);
  end_tasks(1);
}

void EngineThread::admit(Device& device, const Model& model) {
  while (!waiting_.empty()) {
    LiveTask& next = waiting_.front();
    try {
      EngineSlot* const slot = slot_for(next.task.flow, device, model);
      if (slot == nullptr) return;
      slot->submit(next);
    } catch (const InputError& error) {
      next.fail(400, error.hint().empty() ? error.what() : fmt::format("{} ({})", error.what(), error.hint()));
      end_tasks(1);
    } catch (const HttpProblem& problem) {  // it could be used when it was asked for, and no longer can
      next.fail(problem.status(), problem.what());
      end_tasks(1);
    } catch (const std::exception& error) {
      if (options_.log) options_.log->error("no engine for flow \"{}\": {}", next.task.flow, error.what());
      next.fail(500, "the engine could not be made; the server's log tells more");
      end_tasks(1);
    }
    waiting_.pop_front();
  }
}

EngineSlot* EngineThread::slot_for(const std::string& flow, Device& device, const Model& model) {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const EngineSlot& slot) { return slot.flow() == flow; });
  if (found != slots_.end()) return &*found;
  const bool full = static_cast<int>(slots_.size()) >= options_.most_engines;
  const auto idle = full ? oldest_idle() : slots_.end();
  if (full && idle == slots_.end()) return nullptr;
  std::optional<Plan> plan;
  if (!flow.empty()) plan = compile(options_.read_flow(flow, trace_options(config_))).plan;
  if (full) drop(idle);
  return &make_slot(flow, std::move(plan), device, model);
}

EngineSlot& EngineThread::make_slot(const std::string& flow, std::optional<Plan> plan, Device& device, const Model& model) {
  const EngineRoom room{.free_bytes = device.free_bytes(),
                        .weight_bytes = model.weight_bytes(),
                        .engines_to_come = options_.most_engines - static_cast<int>(slots_.size()),
                        .keeps_state = plan && !plan->graph.states.empty()};
  const EngineOptions options = options_of_engine(options_, device.info(), room);
  const std::string name = flow.empty() ? "dense attention" : fmt::format("flow \"{}\"", flow);
  try {
    EngineSlot& slot = slots_.emplace_back(device, model, flow, std::move(plan), options, metrics_);
    if (options_.log) {
      options_.log->info("an engine for {}: {} pages in {:.1f} GiB, at most {} requests at once", name, slot.stats().pages_total,
                         static_cast<double>(options.pool_bytes) / (1 << 30), options.max_batch);
    }
    return slot;
  } catch (const FlowError&) {
    throw;  // the device cannot run it
  } catch (const InputError& error) {
    // The server lacks memory or a library, which no client can help.
    if (options_.log) options_.log->error("no engine for {}: {} ({})", name, error.what(), error.hint());
    throw HttpProblem(503, "the engine could not be made; the server's log tells more").with_header("Retry-After", "10");
  }
}

std::list<EngineSlot>::iterator EngineThread::oldest_idle() {
  auto oldest = slots_.end();
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    if (!slot->busy() && (oldest == slots_.end() || slot->last_used() < oldest->last_used())) oldest = slot;
  }
  return oldest;
}

void EngineThread::drop(std::list<EngineSlot>::iterator slot) {
  try {
    preemptions_ += slot->stats().preemptions;
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", slot->flow(), error.what());
  }
  slots_.erase(slot);
}

void EngineThread::fail(std::list<EngineSlot>::iterator slot, const std::exception& error) {
  if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", slot->flow(), error.what());
  const bool input = dynamic_cast<const InputError*>(&error) != nullptr;
  end_tasks(slot->take_ended() + slot->fail_all(500, input ? error.what() : "the engine failed; the server's log tells more"));
  slots_.erase(slot);
}

void EngineThread::step_all() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    try {
      if (current->busy()) current->step();
      end_tasks(current->take_ended());
    } catch (const std::exception& error) {
      fail(current, error);
    }
  }
}

void EngineThread::drop_idle() {
  const auto limit = GenerationClock::now() - options_.idle;
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    if (!current->busy() && current->last_used() < limit) drop(current);
  }
}

/// Tells the gauges, which costs a wait for the device, now and then.
void EngineThread::publish(bool now) {
  constexpr std::chrono::milliseconds kBetween(100);
  const auto time = GenerationClock::now();
  if (!now && time - published_ < kBetween) return;
  published_ = time;
  EngineGauges gauges;
  gauges.waiting = static_cast<int>(waiting_.size());
  gauges.preemptions = preemptions_;
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    try {
      const EngineStats stats = current->stats();
      gauges.running += stats.running;
      gauges.waiting += stats.waiting;
      gauges.pages += stats.pages_total;
      gauges.pages_used += stats.pages_total - stats.pages_free;
      gauges.preemptions += stats.preemptions;
    } catch (const std::exception& error) {
      fail(current, error);
    }
  }
  metrics_.set_gauges(gauges);
}

void EngineThread::end_tasks(int count) {
  if (count == 0) return;
  const std::lock_guard lock(mutex_);
  unfinished_ -= count;
}

void EngineThread::fail_everything(int status, const std::string& message) {
  for (EngineSlot& slot : slots_) end_tasks(slot.take_ended() + slot.fail_all(status, message));
  for (const LiveTask& live : waiting_) live.fail(status, message);
  end_tasks(static_cast<int>(waiting_.size()));
  waiting_.clear();
}

}  // namespace sluice
