#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

// Each adds one subcommand; its callback does the work and throws InputError, FlowError or InternalError.
void add_check(CLI::App& app);
void add_plan(CLI::App& app);
void add_run(CLI::App& app);
void add_trace(CLI::App& app);
void add_generate(CLI::App& app);
void add_bench(CLI::App& app);
void add_worker(CLI::App& app);
void add_eval(CLI::App& app);
void add_repl(CLI::App& app);
void add_serve(CLI::App& app);
void add_fsck(CLI::App& app);
void add_agent(CLI::App& app);
void add_frozen(CLI::App& app);
void add_submit(CLI::App& app);
void add_cancel(CLI::App& app);
void add_confirm(CLI::App& app);
/// list, leaderboard, show, tree and diff.
void add_submissions(CLI::App& app);
void add_export(CLI::App& app);

}  // namespace sluice::cli
