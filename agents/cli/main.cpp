#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "agents/cli/commands.h"
#include "scripting/graph/error.h"

namespace {

enum ExitCode { kDone = 0, kInputAtFault = 1, kOurs = 2 };

int report(const std::string& message, const std::string& hint = {}) {
  fmt::print(stderr, "error: {}\n", message);
  if (!hint.empty()) fmt::print(stderr, "  hint: {}\n", hint);
  return kInputAtFault;
}

/// "sluice bench topk", as far as the command line was understood.
std::string command_of(const CLI::App& app) {
  std::string command = "sluice";
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  return command;
}

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
    const std::vector<std::string> unknown = app.remaining();
    if (app.get_subcommands().empty() && !unknown.empty()) {
      return report(fmt::format("there is no command \"{}\"", unknown.front()), "sluice --help lists what there is");
    }
    return report(error.what(), fmt::format("{} --help lists what there is", command_of(app)));
  } catch (const sluice::InputError& error) {
    return report(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    return report("out of memory", "a smaller batch, context or pool needs less");
  } catch (const std::exception& error) {
    if (output_was_lost()) return kDone;  // that is why, and it is reported below
    fmt::print(stderr, "internal error: {}\n", error.what());
    return kOurs;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Sluice judges sparse-attention flows: accuracy and speed on a real model, beside dense attention."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "sluice 0.1.0");
  sluice::cli::add_eval(app);
  sluice::cli::add_check(app);
  sluice::cli::add_plan(app);
  sluice::cli::add_run(app);
  sluice::cli::add_generate(app);
  sluice::cli::add_bench(app);
  const int code = run(app, argc, argv);
  if (code == kDone && output_was_lost()) return report("standard output cannot be written", "is the disk full?");
  return code;
}
