#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agents/generation/engine_slot.h"
#include "agents/generation/flow_engine.h"
#include "agents/generation/task_mail.h"

namespace sluice {

/// The engine of a flow whose passes may take seconds, in a thread and on a CPU device of its own, so that others need not wait
/// for them. Its threads give way to all others of the machine. Belongs to the engine's thread, which hands it tasks.
class DearEngine final : public FlowEngine {
 public:
  using MakeDevice = std::function<std::unique_ptr<Device>()>;
  using Make = std::function<std::unique_ptr<EngineSlot>(Device& device)>;

  /// Both are called in the new thread, once there are tasks; what they throw is told to these, and the next task has them called
  /// again. `changed` is called there when tasks have ended, or the engine has failed.
  DearEngine(std::string flow, MakeDevice make_device, Make make, std::function<void()> changed);
  /// Waits for the pass that runs, or for the engine that is made.
  ~DearEngine() override;

  const std::string& flow() const override { return flow_; }
  bool busy() const override;
  GenerationClock::time_point last_used() const override;
  /// As of its last pass.
  EngineStats stats() const override;
  bool runs_itself() const override { return true; }
  void submit(LiveTask& live) override;
  bool cancel(uint64_t id, bool stopped) override;
  bool step() override;
  int fail_all(int status, const std::string& message) override;
  int take_ended() override;

 private:
  // In its thread.
  void run();
  TaskMail take_mail(bool waits);
  /// So many tasks have ended; `slot`: which has those that have not, null: there are none.
  void report(const EngineSlot* slot, int ended);
  void end(EngineSlot* slot);

  const std::string flow_;
  const MakeDevice make_device_;
  const Make make_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  TaskMail mail_;
  std::vector<uint64_t> unended_;  // ids of tasks here
  int ended_ = 0;
  EngineStats stats_;
  GenerationClock::time_point last_used_ = GenerationClock::now();
  std::exception_ptr error_;
  int status_ = 503;  // of tasks that have not ended when it stops
  std::string message_ = "the server stops";
  std::thread thread_;
};

}  // namespace sluice
