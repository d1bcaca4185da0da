#include "agents/generation/engine_thread.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "agents/generation/dear_engine.h"
#include "agents/generation/engine_slot.h"
#include "agents/generation/flow_cost.h"
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
    : options_(std::move(options)),
      metrics_(metrics),
      config_(load_config(options_.model)),
      plans_([this](const std::string& flow) { return compile(options_.read_flow(flow, trace_options(config_))).plan; }) {
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

std::vector<uint64_t> EngineThread::submit(std::vector<GenerationTask> tasks) {
  if (tasks.empty()) return {};
  const std::string caller = tasks.front().caller;
  for (GenerationTask& task : tasks) {
    if (!task.flow.empty()) task.plan = plans_.get(task.flow, caller);
  }
  const std::lock_guard lock(mutex_);
  require_room(static_cast<int>(tasks.size()), caller);
  std::vector<uint64_t> ids;
  for (GenerationTask& task : tasks) {
    LiveTask live;
    live.id = ++last_id_;
    live.prompt_tokens = static_cast<int>(task.request.prompt.size());
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
    step_next();
    take_ended();
    drop_idle();
    publish(false);
  }
  fail_everything(503, "the server stops");
  publish(true);
}

EngineThread::Mail EngineThread::take_mail() {
  constexpr std::chrono::milliseconds kBetweenGauges(100);
  const auto is_busy = [&](bool by_itself) {
    return std::any_of(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return slot.engine->runs_itself() == by_itself && slot.engine->busy(); });
  };
  const bool others_run = is_busy(true);
  // A slot that has just become idle, or failed, is one that the next task may have been waiting for.
  const bool is_idle = !is_busy(false) && (waiting_.empty() || others_run);
  if (is_idle) publish(!others_run);
  std::unique_lock lock(mutex_);
  const auto arrived = [&] { return mail_.stop || mail_.changed || !mail_.tasks.empty() || !mail_.cancellations.empty(); };
  const GenerationClock::duration most = options_.idle;
  if (is_idle) changed_.wait_for(lock, others_run ? kBetweenGauges : most, arrived);
  return std::exchange(mail_, {});
}

void EngineThread::cancel_now(const Cancellation& cancellation) {
  for (const Slot& slot : slots_) {
    if (slot.engine->cancel(cancellation.id, cancellation.stopped)) return;
  }
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) { return live.id == cancellation.id; });
  if (found == waiting_.end()) return;  // it has just ended
  metrics_.abandoned();
  waiting_.erase(found);
  end_tasks(1);
}

void EngineThread::admit(Device& device, const Model& model) {
  bool held_up = false;  // a flow waits for an engine, and so does every flow behind it
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (held_up && !next->task.flow.empty()) {
      ++next;
      continue;
    }
    try {
      FlowEngine* const engine = slot_for(next->task, device, model);
      if (engine == nullptr) {
        held_up = true;
        ++next;
        continue;
      }
      engine->submit(*next);
    } catch (const InputError& error) {
      next->fail(400, error.hint().empty() ? error.what() : fmt::format("{} ({})", error.what(), error.hint()));
      end_tasks(1);
    } catch (const HttpProblem& problem) {  // it could be used when it was asked for, and no longer can
      next->fail(problem.status(), problem.what());
      end_tasks(1);
    } catch (const std::exception& error) {
      if (options_.log) options_.log->error("no engine for flow \"{}\": {}", next->task.flow, error.what());
      next->fail(500, "the engine could not be made; the server's log tells more");
      end_tasks(1);
    }
    next = waiting_.erase(next);
  }
}

FlowEngine* EngineThread::slot_for(const GenerationTask& task, Device& device, const Model& model) {
  const auto is_its = [&](const Slot& slot) { return slot.engine->flow() == task.flow; };
  const auto found = std::find_if(slots_.begin(), slots_.end(), is_its);
  if (found != slots_.end()) return found->engine.get();
  const bool dense = task.flow.empty();
  const bool has_dense = std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.engine->flow().empty(); });
  // The last place is that of dense attention.
  const int kept = dense || has_dense || options_.most_engines == 1 ? 0 : 1;
  const bool full = static_cast<int>(slots_.size()) + kept >= options_.most_engines;
  const auto idle = full ? oldest_idle() : slots_.end();
  if (full && idle == slots_.end()) return nullptr;
  if (full) drop(idle);
  return &make_slot(task.flow, task.plan, device, model);
}

FlowEngine& EngineThread::make_slot(const std::string& flow, std::shared_ptr<const Plan> plan, Device& device,
                                    const Model& model) {
  const EngineRoom room{.free_bytes = device.free_bytes(),
                        .weight_bytes = model.weight_bytes(),
                        .engines_to_come = options_.most_engines - static_cast<int>(slots_.size()),
                        .keeps_state = plan && !plan->graph.states.empty()};
  const EngineOptions options = options_of_engine(options_, device.info(), room);
  const std::string name = flow.empty() ? "dense attention" : fmt::format("flow \"{}\"", flow);
  try {
    slots_.push_back({make_engine(flow, std::move(plan), options, device, model), level_, true});
    FlowEngine& engine = *slots_.back().engine;
    if (options_.log) {
      options_.log->info("an engine for {}: {} pages in {:.1f} GiB, at most {} requests at once", name,
                         engine.stats().pages_total, static_cast<double>(options.pool_bytes) / (1 << 30), options.max_batch);
    }
    return engine;
  } catch (const FlowError&) {
    throw;  // the device cannot run it
  } catch (const InputError& error) {
    // The server lacks memory or a library, which no client can help.
    if (options_.log) options_.log->error("no engine for {}: {} ({})", name, error.what(), error.hint());
    throw HttpProblem(503, "the engine could not be made; the server's log tells more").with_header("Retry-After", "10");
  }
}

std::unique_ptr<FlowEngine> EngineThread::make_engine(const std::string& flow, std::shared_ptr<const Plan> plan,
                                                      const EngineOptions& options, Device& device, const Model& model) {
  const auto make = [&](Device& on) { return std::make_unique<EngineSlot>(on, model, flow, plan, options, metrics_); };
  if (!plan || !is_dear(*plan, options, device.info())) return make(device);
  return std::make_unique<DearEngine>(flow, device.info().threads, make, [this] {
    const std::lock_guard lock(mutex_);
    mail_.changed = true;
    changed_.notify_one();
  });
}

bool EngineThread::is_dear(const Plan& plan, const EngineOptions& options, const DeviceInfo& device) const {
  constexpr double kMostOfAPass = 1 << 30;     // operations: a few tenths of a second on two cores
  if (device.works_beside_host) return false;  // there is one of it
  const double heads = static_cast<double>(config_.layers) * config_.kv_heads;
  const double pages = static_cast<double>(options.pool_bytes) / (static_cast<double>(plan.layout.bytes) * heads);
  return operations_a_page(plan.graph) * heads * pages > kMostOfAPass;
}

EngineThread::Slots::iterator EngineThread::oldest_idle() {
  auto oldest = slots_.end();
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    if (slot->engine->busy() || (slot->engine->flow().empty() && options_.most_engines > 1)) continue;
    if (oldest == slots_.end() || slot->engine->last_used() < oldest->engine->last_used()) oldest = slot;
  }
  return oldest;
}

void EngineThread::drop(Slots::iterator slot) {
  try {
    preemptions_ += slot->engine->stats().preemptions;
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", slot->engine->flow(), error.what());
  }
  slots_.erase(slot);
}

void EngineThread::fail(Slots::iterator slot, const std::exception& error) {
  FlowEngine& engine = *slot->engine;
  if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", engine.flow(), error.what());
  const bool input = dynamic_cast<const InputError*>(&error) != nullptr;
  end_tasks(engine.take_ended() + engine.fail_all(500, input ? error.what() : "the engine failed; the server's log tells more"));
  slots_.erase(slot);
}

EngineThread::Slots::iterator EngineThread::next_to_step() {
  auto next = slots_.end();
  for (auto slot = slots_.begin(); slot != slots_.end(); ++slot) {
    if (slot->engine->runs_itself()) continue;
    const bool waits = !slot->engine->busy();
    // Who had nothing to do does not make up for that time.
    if (!waits && slot->waits) slot->seconds = std::max(slot->seconds, level_);
    slot->waits = waits;
    if (!waits && (next == slots_.end() || slot->seconds < next->seconds)) next = slot;
  }
  return next;
}

void EngineThread::step_next() {
  const auto slot = next_to_step();
  if (slot == slots_.end()) return;
  level_ = slot->seconds;
  const auto begun = GenerationClock::now();
  try {
    slot->engine->step();
    slot->seconds += std::chrono::duration<double>(GenerationClock::now() - begun).count();
  } catch (const std::exception& error) {
    fail(slot, error);
  }
}

void EngineThread::take_ended() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    try {
      if (current->engine->runs_itself()) current->engine->step();
      end_tasks(current->engine->take_ended());
    } catch (const std::exception& error) {
      fail(current, error);
    }
  }
}

void EngineThread::drop_idle() {
  const auto limit = GenerationClock::now() - options_.idle;
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    const auto current = slot++;
    if (!current->engine->busy() && current->engine->last_used() < limit) drop(current);
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
      const EngineStats stats = current->engine->stats();
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
  for (const Slot& slot : slots_) end_tasks(slot.engine->take_ended() + slot.engine->fail_all(status, message));
  for (const LiveTask& live : waiting_) live.fail(status, message);
  end_tasks(static_cast<int>(waiting_.size()));
  waiting_.clear();
}

}  // namespace sluice
