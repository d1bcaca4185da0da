#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "agents/cli/commands.h"
#include "sandbox/process/child.h"
#include "sandbox/sandboxed_solve.h"
#include "scripting/base/error.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/resource_error.h"

namespace {

enum ExitCode { kDone = 0, kInputAtFault = 1, kOurs = 2 };

/// Given up where memory runs out, once, so that what is destroyed on the way to a message may allocate: a JSON document does,
/// and destructors must not throw.
std::atomic<void*> memory_to_spare = nullptr;

void spare_memory() {
  constexpr size_t kBytes = size_t{4} << 20;
  memory_to_spare = std::malloc(kBytes);
  std::set_new_handler([] {
    std::free(memory_to_spare.exchange(nullptr));
    throw std::bad_alloc();
  });
}

/// After what the command printed before it, where both streams meet. If it cannot be written, the exit code tells all the same.
void say(const std::string& text) {
  std::fflush(stdout);
  std::fputs(sluice::printable(text).c_str(), stderr);
}

int report(const std::string& message, const std::string& hint = {}) {
  say(fmt::format("error: {}\n", message));
  if (!hint.empty()) say(fmt::format("  hint: {}\n", hint));
  return kInputAtFault;
}

/// A standard stream that the caller closed: no file that is opened later may take its place. Using it remains an error.
void keep_streams_apart() {
  for (int stream = 0; stream < 3; ++stream) {
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
  }
}

/// The command line, as far as it was understood: "sluice bench topk".
struct Understood {
  const CLI::App* command;
  std::string text = "sluice";

  explicit Understood(const CLI::App& app) : command(&app) {
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      text += " " + command->get_name();
    }
  }
  bool has_commands() const { return !command->get_subcommands(nullptr).empty(); }
};

bool output_was_lost() {
  std::cout.flush();  // CLI11 writes its help there
  return std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return kDone;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::RuntimeError& error) {  // a command has said what is wrong
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    const Understood line(app);
    const std::string hint = fmt::format("{} --help lists what there is", line.text);
    const std::vector<std::string> unknown = app.remaining(true);
    if (line.has_commands() && !unknown.empty()) {
      return report(fmt::format("there is no command \"{} {}\"", line.text, unknown.front()), hint);
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !unknown.empty()) {  // CLI11 names them last to first
      return report(fmt::format("{} does not take: {}", line.text, fmt::join(unknown, " ")), hint);
    }
    return report(error.what(), hint);
  } catch (const sluice::InputError& error) {
    return report(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    return report("out of memory", "a smaller batch, context or pool needs less");
  } catch (const std::exception& error) {
    if (output_was_lost()) return kDone;  // that is why, and it is reported below
    if (sluice::is_lack(error))
      return report(error.what(), "this is what the machine lacks just now, or a limit of the shell (ulimit -a)");
    say(fmt::format("internal error: {}\n", error.what()));
    return kOurs;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (sluice::is_sandbox_child(argc, argv)) sluice::run_sandbox_child(argc, argv);
  sluice::set_pattern_solver(sluice::solve_sandboxed);
  spare_memory();
  keep_streams_apart();
  CLI::App app{"Sluice judges sparse-attention flows: accuracy and speed on a real model, beside dense attention."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  sluice::cli::add_eval(app);
  sluice::cli::add_check(app);
  sluice::cli::add_plan(app);
  sluice::cli::add_run(app);
  sluice::cli::add_trace(app);
  sluice::cli::add_generate(app);
  sluice::cli::add_bench(app);
  sluice::cli::add_repl(app);
  sluice::cli::add_worker(app);
  sluice::cli::add_serve(app);
  sluice::cli::add_fsck(app);
  sluice::cli::add_agent(app);
  sluice::cli::add_frozen(app);
  sluice::cli::add_submit(app);
  sluice::cli::add_cancel(app);
  sluice::cli::add_confirm(app);
  sluice::cli::add_submissions(app);
  sluice::cli::add_export(app);
  const int code = run(app, argc, argv);
  if (code == kDone && output_was_lost()) return report("standard output cannot be written", "is the disk full?");
  return code;
}
