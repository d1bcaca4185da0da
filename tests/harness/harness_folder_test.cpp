#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "agents/flow_script.h"
#include "agents/harness/harness.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

TEST(HarnessFolder, IsWholeAfterEveryStop) {
  std::signal(SIGPIPE, SIG_IGN);
  const testing::TemporaryDirectory directory;
  HarnessOptions options;
  options.folder = directory.file("data");
  options.model = SLUICE_SOURCE_DIR "/host/models/mini";
  options.threads = 1;
  options.suite = "verify";
  options.program = SLUICE_PROGRAM;
  const std::string script = read_flow("streaming").source;
  for (int round = 0; round < 3; ++round) {
    {
      Harness harness(options);
      store::Store store(database_of(options.folder));
      if (round == 0) store.create_agent("ada", store::Role::kAgent, 100);
      harness.start();
      store::SubmissionId last = 0;
      for (int i = 0; i < 5; ++i) {
        store::Draft draft;
        draft.name = "flow";
        draft.script = script + "\n-- " + std::to_string(5 * round + i);
        if (last != 0) draft.parents = {last};
        last = store.submit("ada", draft).id;
      }
      const auto deadline = std::chrono::steady_clock::now() + 60s;
      while (!store::is_final(store.get(last)->status) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(10ms);
      }
      EXPECT_EQ(store.get(last)->status, store::Status::kPassed);
      for (const char* artifact : {"report.json", "graph.json", "plan.txt"})
        EXPECT_TRUE(store.artifact(last, artifact)) << artifact;
    }
    const store::FsckReport report = store::fsck(options.folder);
    EXPECT_EQ(report.problems, std::vector<std::string>());
    EXPECT_EQ(report.commits, report.submissions);
    EXPECT_EQ(report.submissions, 5 * (round + 1));
  }
}

}  // namespace
}  // namespace sluice
