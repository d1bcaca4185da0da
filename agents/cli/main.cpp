#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "agents/cli/commands.h"
#include "scripting/graph/error.h"

namespace {

enum ExitCode { kDone = 0, kInputAtFault = 1, kOurs = 2 };

int report(const sluice::InputError& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  if (!error.hint().empty()) fmt::print(stderr, "  hint: {}\n", error.hint());
  return kInputAtFault;
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
  try {
    app.parse(argc, argv);
    return kDone;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kInputAtFault;
  } catch (const sluice::InputError& error) {
    return report(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n", error.what());
    return kOurs;
  }
}
