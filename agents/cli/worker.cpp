#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <string_view>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/orchestrator/worker.h"
#include "host/weights/model_path.h"
#include "scripting/base/error.h"
#include "scripting/base/freed_memory.h"

namespace sluice::cli {
namespace {

/// Standard output for messages alone: whatever else is printed goes to the error stream.
int take_standard_output() {
  const int out = ::dup(STDOUT_FILENO);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) throw InternalError("worker: no standard output");
  return out;
}

/// Where memory runs out, whoever judges strangers' flows goes before the server does.
void go_first() {
  const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  constexpr std::string_view kScore = "500";
  static_cast<void>(::write(file, kScore.data(), kScore.size()) < 0);  // a system without it has its own way
  ::close(file);
}

void work(WorkerOptions options) {
  go_first();
  keep_little_freed_memory();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody waits for what an orphan finds
  options.model = model_path(options.model);
  const int out = take_standard_output();
  run_worker(options, STDIN_FILENO, out);
  ::close(out);
}

}  // namespace

void add_worker(CLI::App& app) {
  auto options = std::make_shared<WorkerOptions>();
  CLI::App* command = app.add_subcommand("worker", "Judges flows that a server sends, as lines of JSON");
  command->group("");  // started by servers, not by people
  add_model(*command, options->model);
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: all")->check(decimal_number(0, 1024));
  command
      ->add_option_function<size_t>(
          "--flow-mib", [options](const size_t& mib) { options->flow_bytes = mib << 20; }, "Memory that a flow may take")
      ->check(decimal_number(1, 1 << 20));
  command->callback([options] { work(*options); });
}

}  // namespace sluice::cli
