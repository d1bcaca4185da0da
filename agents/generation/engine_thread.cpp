#include "agents/generation/engine_thread.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "agents/evaluation/trace_options.h"
#include "agents/generation/completion_request.h"
#include "agents/generation/dear_engine.h"
#include "agents/generation/engine_slot.h"
#include "agents/generation/flow_cost.h"
#include "agents/http/http_problem.h"
#include "scripting/base/error.h"
#include "scripting/graph/plan.h"

namespace sluice {
namespace {

/// Of which a client learns no more than that the log tells it.
bool is_unexplained(const std::exception& error) {
  return dynamic_cast<const InputError*>(&error) == nullptr && dynamic_cast<const HttpProblem*>(&error) == nullptr;
}

}  // namespace

EngineThread::EngineThread(GenerationOptions options, GenerationMetrics& metrics)
    : options_(std::move(options)),
      limits_(place_limits(options_.most_engines, options_.flows)),
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
    TaskMail mail = take_mail();
    for (LiveTask& live : mail.tasks) {
      live.dear = live.task.plan && is_dear(*live.task.plan, device);
      waiting_.push_back(std::move(live));
    }
    for (const TaskMail::Cancellation& cancellation : mail.cancellations) cancel_now(cancellation);
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

TaskMail EngineThread::take_mail() {
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
  const GenerationClock::duration most = options_.idle;
  if (is_idle) changed_.wait_for(lock, others_run ? kBetweenGauges : most, [&] { return !mail_.empty(); });
  return std::exchange(mail_, {});
}

void EngineThread::cancel_now(const TaskMail::Cancellation& cancellation) {
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
  std::set<std::string> closed;  // before: they stay the same as long as somebody needs them
  for (const Slot& slot : slots_) {
    if (slot.closed.is_any()) closed.insert(slot.engine->flow());
  }
  while (admit_until_placed(closed, device, model)) {
  }
  std::stable_partition(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) {
    const auto slot = find_slot(live.task.flow);
    return slot == slots_.end() || !has_enough(*slot, live.task.caller, device);
  });
}

bool EngineThread::has_enough(const Slot& slot, const std::string& caller, const Device& device) const {
  const int batch = options_of_engine(options_, device.info(), {}).max_batch;
  return slot.users.of(caller) >= std::max(kMostChoices, batch + batch / 4);
}

bool EngineThread::admit_until_placed(std::set<std::string> closed, Device& device, const Model& model) {
  for (Slot& slot : slots_) slot.closed = {};  // until somebody who waits is found to need it
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const std::string flow = next->task.flow;
    const std::string caller = next->task.caller;
    const auto slot = find_slot(flow);
    const bool is_new = slot == slots_.end();
    const bool takes_place = is_new && shares_places(flow);
    const bool dear = next->dear;
    const bool must_wait =
        is_new ? takes_place && !make_place(*next, closed) : slot->closed.holds(caller) || has_enough(*slot, caller, device);
    if (must_wait) {
      ++next;
      continue;
    }
    try {
      submit_to(is_new ? make_slot(*next, device, model) : *slot, *next);
    } catch (const std::exception& error) {  // it could be used when it was asked for, and no longer can
      if (options_.log && is_unexplained(error)) options_.log->error("no engine for flow \"{}\": {}", flow, error.what());
      next->fail(error);
      end_tasks(1);
    }
    next = waiting_.erase(next);
    if (!takes_place) continue;
    std::stable_partition(waiting_.begin(), waiting_.end(), [&](const LiveTask& live) {
      return live.task.caller != caller || live.task.flow == flow || live.dear != dear || !shares_places(live.task.flow);
    });
    return true;
  }
  return false;
}

bool EngineThread::make_place(const LiveTask& live, std::set<std::string>& closed) {
  // As they are now: an engine that was idle when the line was begun may have got a task since.
  const PlaceOffer offer = offer_place(limits_, live.task.caller, live.dear, shared_places(closed));
  if (offer.kind == PlaceOffer::Kind::kIdle) drop(find_slot(offer.flow));
  if (offer.kind != PlaceOffer::Kind::kLater && offer.kind != PlaceOffer::Kind::kLaterThanOwn) return true;
  Slot& slot = *find_slot(offer.flow);
  if (offer.kind == PlaceOffer::Kind::kLater) slot.closed.everybodys = true;
  if (offer.kind == PlaceOffer::Kind::kLaterThanOwn) slot.closed.callers.insert(live.task.caller);
  closed.insert(offer.flow);
  return false;
}

void EngineThread::submit_to(Slot& slot, LiveTask& live) {
  live.use = slot.users.take(live.task.caller);
  slot.engine->submit(live);
}

EngineThread::Slots::iterator EngineThread::find_slot(const std::string& flow) {
  return std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.engine->flow() == flow; });
}

std::vector<EnginePlace> EngineThread::shared_places(const std::set<std::string>& closed) const {
  std::vector<EnginePlace> places;
  for (const Slot& slot : slots_) {
    const FlowEngine& engine = *slot.engine;
    if (!shares_places(engine.flow())) continue;
    places.push_back({engine.flow(), engine.runs_itself(), engine.busy(), engine.last_used(), slot.users.callers(),
                      closed.contains(engine.flow())});
  }
  return places;
}

EngineThread::Slot& EngineThread::make_slot(const LiveTask& live, Device& device, const Model& model) {
  const bool keeps_state = live.task.plan && !live.task.plan->graph.states.empty();
  const EngineRoom room{.free_bytes = device.free_bytes(),
                        .weight_bytes = model.weight_bytes(),
                        .engines_to_come = limits_.engines - static_cast<int>(slots_.size()),
                        .keeps_state = keeps_state};
  const EngineOptions options = options_of_engine(options_, device.info(), room);
  return slots_.emplace_back(
      Slot{.engine = make_engine(live, options, device, model), .seconds = level_, .waits = true, .users = {}});
}

std::unique_ptr<FlowEngine> EngineThread::make_engine(const LiveTask& live, const EngineOptions& options, Device& device,
                                                      const Model& model) {
  const std::string& flow = live.task.flow;
  const std::string name = flow.empty() ? "dense attention" : fmt::format("flow \"{}\"", flow);
  const auto made = [this, name](const auto& make) {
    try {
      return make();
    } catch (const FlowError&) {
      throw;  // the device cannot run it
    } catch (const InputError& error) {
      // The server lacks memory or a library, which no client can help.
      if (options_.log) options_.log->error("no engine for {}: {} ({})", name, error.what(), error.hint());
      throw HttpProblem(503, "the engine could not be made; the server's log tells more");
    } catch (const std::exception& error) {
      if (options_.log) options_.log->error("no engine for {}: {}", name, error.what());
      throw HttpProblem(500, "the engine could not be made; the server's log tells more");
    }
  };
  const auto make = [this, made, name, flow, plan = live.task.plan, options, &model](Device& on) {
    return made([&] {
      auto engine = std::make_unique<EngineSlot>(on, model, flow, plan, options, metrics_);
      if (options_.log) {
        options_.log->info("an engine for {}: {} pages in {:.1f} GiB, at most {} requests at once", name,
                           engine->stats().pages_total, static_cast<double>(options.pool_bytes) / (1 << 30), options.max_batch);
      }
      return engine;
    });
  };
  if (!live.dear) return make(device);
  const auto make_device = [made, threads = device.info().threads] {
    return made([&] { return create_device("cpu", threads); });
  };
  return std::make_unique<DearEngine>(flow, make_device, make, [this] {
    const std::lock_guard lock(mutex_);
    mail_.changed = true;
    changed_.notify_one();
  });
}

bool EngineThread::is_dear(const Plan& plan, const Device& device) const {
  if (device.info().works_beside_host) return false;  // there is one of it
  return sluice::is_dear(plan, config_, options_of_engine(options_, device.info(), {}));
}

void EngineThread::drop(Slots::iterator slot) {
  try {
    preemptions_ += slot->engine->stats().preemptions;
  } catch (const std::exception& error) {
    if (options_.log) options_.log->error("the engine of flow \"{}\" failed: {}", slot->engine->flow(), error.what());
  }
  end_tasks(slot->engine->take_ended());
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
