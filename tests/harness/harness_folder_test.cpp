#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/harness/harness.h"
#include "scripting/base/error.h"
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

HarnessOptions options_in(const testing::TemporaryDirectory& directory) {
  HarnessOptions options;
  options.folder = directory.file("data");
  options.model = SLUICE_SOURCE_DIR "/host/models/mini";
  options.program = SLUICE_PROGRAM;
  return options;
}

// Whoever were told that it is no seed would remove it.
TEST(HarnessFolder, SaysWhyItsSeedCannotBeRead) {
  const testing::TemporaryDirectory directory;
  const HarnessOptions options = options_in(directory);
  std::filesystem::create_directories(options.folder + "/seed");
  try {
    const Harness harness(options);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("seed: not a regular file"), std::string::npos) << error.what();
  }
}

TEST(HarnessFolder, RefusesASuiteThatItsModelCannotBeAsked) {
  const testing::TemporaryDirectory directory;
  HarnessOptions options = options_in(directory);
  options.suite = "real";
  EXPECT_THROW(Harness{options}, InputError);
  EXPECT_FALSE(std::filesystem::exists(options.folder)) << "nothing was begun";
}

TEST(HarnessFolder, SaysThatVerdictsAreOfAnotherSeed) {
  const testing::TemporaryDirectory directory;
  const HarnessOptions options = options_in(directory);
  const auto notices_without_seed = [&] {
    std::filesystem::remove(options.folder + "/seed");
    return Harness(options).notices();
  };
  EXPECT_TRUE(notices_without_seed().empty()) << "a new folder";
  EXPECT_TRUE(notices_without_seed().empty()) << "nothing was judged";
  {
    store::Store store(database_of(options.folder));
    store.create_agent("ada", store::Role::kAgent, 100);
    store::Draft draft;
    draft.name = "flow";
    draft.script = "return 1";
    store.submit("ada", draft);
    store::Verdict verdict;
    verdict.status = store::Status::kRejectedStatic;
    store.complete(*store.claim("worker", 60'000'000), verdict);
  }
  EXPECT_TRUE(Harness(options).notices().empty()) << "its seed is there";
  ASSERT_EQ(notices_without_seed().size(), 1U);
  EXPECT_NE(notices_without_seed().front().find("seed was missing"), std::string::npos);
  EXPECT_TRUE(Harness(options).notices().empty()) << "it was told once";
}

TEST(HarnessFolder, SaysWhatWaitsForAnotherServer) {
  const testing::TemporaryDirectory directory;
  const HarnessOptions options = options_in(directory);
  EXPECT_TRUE(Harness(options).notices().empty());
  {
    store::Store store(database_of(options.folder));
    store.create_agent("ada", store::Role::kAgent, 100);
    const std::string settings = R"({"device":"another"})";
    const store::StudyId study = store.create_study("ada", {"study", "", settings}).id;
    store::Draft draft;
    draft.name = "flow";
    draft.script = "return 1";
    store.add_trials("ada", study, {{.submission = {}, .flow = draft, .parameters = "{}", .seed = 7}});
  }
  const std::vector<std::string> notices = Harness(options).notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices.front().find("2 jobs in the queue are not for "), 0U) << "a submission and a trial: " << notices.front();
}

/// What a server that judges with the model of `path` takes the settings of a new flow for.
std::string settings_with(const std::string& folder, const std::string& path, const std::string& script) {
  HarnessOptions options;
  options.folder = folder;
  options.model = path;
  options.program = SLUICE_PROGRAM;
  Harness harness(options);
  store::Store store(database_of(folder));
  if (!store.find_agent("ada")) store.create_agent("ada", store::Role::kAgent, 100);
  const Identity ada{"ada", Role::kAgent};
  return harness.service().submit(ada, {{"name", "flow"}, {"script", script}})["settings"].dump();
}

TEST(HarnessFolder, TellsModelsOfOneNameApart) {
  const testing::TemporaryDirectory directory;
  std::vector<std::string> paths;
  for (const char* parent : {"a", "b"}) {
    paths.push_back(directory.file(parent) + "/checkpoint-1000");
    std::filesystem::create_directories(paths.back());
    for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) {
      std::filesystem::copy(std::string(SLUICE_SOURCE_DIR "/host/models/mini/") + file, paths.back() + "/" + file);
    }
  }
  std::ofstream(paths[1] + "/config.json", std::ios::app) << "\n";
  const std::string folder = directory.file("data");
  const std::string script = read_flow("streaming").source;
  const std::string first = settings_with(folder, paths[0], script);
  const std::string second = settings_with(folder, paths[1], script);
  EXPECT_NE(first.find(R"("model":"checkpoint-1000")"), std::string::npos) << first;
  EXPECT_NE(second.find(R"("model":"checkpoint-1000@)"), std::string::npos) << second;
  EXPECT_EQ(settings_with(folder, paths[0], script), first) << "whoever had the name keeps it";
  EXPECT_EQ(settings_with(folder, paths[1], script), second);
  store::Store store(database_of(folder));
  EXPECT_EQ(store.list({}).submissions.size(), 2U) << "one of each model";
}

}  // namespace
}  // namespace sluice
