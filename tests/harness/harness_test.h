#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>

#include "agents/evaluation/flow_script.h"
#include "agents/orchestrator/orchestrator.h"
#include "scripting/lua/trace.h"
#include "store/database/migrations.h"
#include "store/store.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {

/// A store in a folder of its own, with an agent in it, and options for orchestrators whose workers are this build's program.
class HarnessTest : public ::testing::Test {
 protected:
  HarnessTest() : database_(directory_.file("sluice.db")) {
    std::signal(SIGPIPE, SIG_IGN);
    store::Database database(database_, store::Database::Mode::kCreate, 1000);
    store::migrate(database);
    store_.emplace(database_);
    token_ = store_->create_agent("ada", store::Role::kAgent, 100000).token;
  }

  static OrchestratorOptions options(int workers = 1) {
    OrchestratorOptions options;
    options.start_worker = worker_processes({SLUICE_PROGRAM, {"worker", "--threads", "1"}});
    options.workers = workers;
    options.suite = "verify";
    options.poll_seconds = 0.05;
    options.lease_seconds = 5;
    options.seed = Seed::parse("orchestration");
    options.check = [](const FlowScript& script) {
      script.trace({});
      return CheckedFlow();
    };
    return options;
  }

  TemporaryDirectory directory_;
  std::string database_;
  std::string token_;  // of the agent "ada"
  std::optional<store::Store> store_;
};

}  // namespace sluice::testing
