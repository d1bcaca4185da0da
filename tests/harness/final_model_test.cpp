// A server with a second model, which judges what passed on the first.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/harness/harness.h"
#include "agents/http/http_problem.h"
#include "scripting/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using testing::eventually;

/// A folder, and the mini under another name and with another digest beside it.
class FinalModel : public ::testing::Test {
 protected:
  FinalModel() {
    std::signal(SIGPIPE, SIG_IGN);
    std::filesystem::create_directories(other());
    for (const char* file : {"config.json", "tokenizer.json", "model.safetensors", "vocabulary.json"}) {
      std::filesystem::copy(std::string(SLUICE_SOURCE_DIR "/host/models/mini/") + file, other() + "/" + file);
    }
    std::ofstream(other() + "/config.json", std::ios::app) << "\n";
  }

  /// Of the other model.
  void change(const std::string& file, const std::function<void(nlohmann::json&)>& change) const {
    const std::string path = other() + "/" + file;
    nlohmann::json document = nlohmann::json::parse(std::ifstream(path));
    change(document);
    std::ofstream(path) << document.dump();
  }

  std::string other() const { return directory_.file("large"); }

  HarnessOptions options(bool has_final = true) const {
    HarnessOptions options;
    options.folder = directory_.file("data");
    options.model = SLUICE_SOURCE_DIR "/host/models/mini";
    options.threads = 1;
    options.suite = "verify";
    options.confirms = false;
    options.program = SLUICE_PROGRAM;
    if (has_final) options.final_model = other();
    options.final_suite = "verify";
    return options;
  }

  int64_t submit(Harness& harness, const std::string& name, const std::string& script) {
    if (!store().find_agent("ada")) store().create_agent("ada", store::Role::kAgent, 100);
    return harness.service().submit({"ada", Role::kAgent}, {{"name", name}, {"script", script}})["id"];
  }
  int64_t submit_flow(Harness& harness, const std::string& flow) { return submit(harness, flow, read_flow(flow).source); }
  bool has_ended(int64_t id) {
    return eventually([&] { return store::is_final(store().find_status(id).value()); });
  }
  bool has_final(int64_t id) {
    return eventually([&] {
      const auto last = store().summary(id)->final;
      return last && store::is_final(last->status);
    });
  }

  std::string refusal(const HarnessOptions& options) const {
    try {
      const Harness harness(options);
    } catch (const InputError& error) {
      EXPECT_FALSE(std::filesystem::exists(options.folder)) << "nothing was begun";
      return error.what();
    }
    return {};
  }

  store::Store store() const { return store::Store(database_of(directory_.file("data"))); }

  testing::TemporaryDirectory directory_;
};

TEST_F(FinalModel, JudgesWhatPassed) {
  Harness harness(options());
  harness.start();
  const int64_t fell = submit(harness, "no flow", "return 1");
  const int64_t id = submit_flow(harness, "streaming");
  ASSERT_TRUE(has_final(id));
  const store::Final last = store().summary(id)->final.value();
  EXPECT_TRUE(last.passed());
  EXPECT_FALSE(last.metrics.empty());
  const store::Submission judged = store().get(last.submission).value();
  const auto settings = nlohmann::json::parse(judged.settings);
  EXPECT_EQ(settings["model"], "large");
  EXPECT_EQ(settings["suite"], "verify");
  EXPECT_NE(store().last_evaluation(last.submission)->worker.find("final"), std::string::npos);
  EXPECT_EQ(store().last_evaluation(id)->worker.find("final"), std::string::npos);
  EXPECT_FALSE(store().summary(fell)->final) << "it was refused";
  EXPECT_EQ(store().agents().front().submissions, 2);

  const Identity root{"root", Role::kAdmin};
  harness.service().judge_again(root, last.submission);
  ASSERT_TRUE(has_ended(last.submission));
  EXPECT_EQ(store().evaluations(last.submission).size(), 2U);
  const int64_t used = store().quota_of("ada").used;
  harness.service().confirm({"ada", Role::kAgent}, id);
  EXPECT_TRUE(eventually([&] { return store().summary(id)->final->confirmed == store::Status::kPassed; }));
  EXPECT_TRUE(store().confirmation(id)) << "both are confirmed";
  EXPECT_EQ(store().quota_of("ada").used, used + 1) << "at the price of one";
  EXPECT_EQ(store().list({.with_finals = true}).submissions.size(), 3U) << "what it judges has no final itself";
}

TEST_F(FinalModel, SharesTheVerdictOfOneFlow) {
  Harness harness(options());
  harness.start();
  const int64_t first = submit_flow(harness, "streaming");
  ASSERT_TRUE(has_final(first));
  const int64_t copy = submit(harness, "copy", read_flow("streaming").source + "\n-- a comment");
  ASSERT_TRUE(has_ended(copy));
  EXPECT_EQ(store().summary(copy)->same_as, first);
  EXPECT_EQ(store().summary(copy)->final->submission, store().summary(first)->final->submission);
}

TEST_F(FinalModel, JudgesWhatPassedBeforeItWasThereAndWhatItSaidStays) {
  int64_t id = 0;
  {
    Harness harness(options(false));
    harness.start();
    id = submit_flow(harness, "streaming");
    ASSERT_TRUE(has_ended(id));
    EXPECT_FALSE(store().summary(id)->final);
  }
  {
    Harness harness(options());
    harness.start();
    ASSERT_TRUE(has_final(id)) << "as after a server that was killed between both";
  }
  {
    Harness harness(options(false));
    EXPECT_EQ(harness.notices(), std::vector<std::string>());
    harness.start();
    EXPECT_TRUE(store().summary(id)->final->passed());
    EXPECT_THROW(harness.service().judge_again({"root", Role::kAdmin}, store().summary(id)->final->submission), HttpProblem);
  }
  EXPECT_EQ(store::fsck(options().folder).problems, std::vector<std::string>());
}

TEST_F(FinalModel, WaitsForItsServer) {
  int64_t last = 0;
  {
    Harness harness(options());  // which judges nothing before its start
    const int64_t id = submit_flow(harness, "streaming");
    store::Store own = store();
    store::Verdict passed;
    passed.metrics = {{"score", "", 0, 0.5, {}, {}, ""}};
    own.complete(own.claim("a test", 60'000'000).value(), passed);
    harness.start();
    last = store().summary(id)->final->submission;
  }
  if (store::is_final(store().find_status(last).value())) store().judge_again(last);
  const std::vector<std::string> notices = Harness(options(false)).notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices.front().find("1 job in the queue is not for mini on cpu"), 0U) << notices.front();
  EXPECT_EQ(Harness(options()).notices(), std::vector<std::string>());
}

TEST_F(FinalModel, IsAnotherThanTheFirst) {
  HarnessOptions same = options();
  same.final_model = same.model;
  EXPECT_NE(refusal(same).find("the final model is the one that judges first"), std::string::npos);
}

TEST_F(FinalModel, IsRefusedASuiteThatItCannotBeAsked) {
  HarnessOptions english = options();
  english.final_suite = "real";
  EXPECT_NE(refusal(english).find("the suite real is for models of natural language"), std::string::npos);
  HarnessOptions nowhere = options();
  nowhere.final_model = other() + "/nowhere";
  EXPECT_NE(refusal(nowhere), "");
}

TEST_F(FinalModel, IsRefusedWithoutTheWordsOfItsTasks) {
  change("vocabulary.json", [](nlohmann::json& vocabulary) { vocabulary["filler"].push_back("unheard"); });
  change("tokenizer.json", [](nlohmann::json& tokenizer) { tokenizer["model"].erase("unk_token"); });
  HarnessOptions wordless = options();
  wordless.final_suite = "quick";
  EXPECT_NE(refusal(wordless).find("unheard"), std::string::npos) << refusal(wordless);
}

TEST_F(FinalModel, IsRefusedContextsThatItHasNot) {
  change("config.json", [](nlohmann::json& config) { config["max_position_embeddings"] = 512; });
  HarnessOptions shorter = options();
  shorter.final_suite = "standard";
  EXPECT_NE(refusal(shorter).find("the model has 512 positions"), std::string::npos) << refusal(shorter);
}

}  // namespace
}  // namespace sluice
