// Suite reuse: documents whose parts stood in another order, and rules that say what is computed again.
#include "agents/evaluation/reuse_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "agents/evaluation/cascade.h"
#include "agents/evaluation/documents.h"
#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/reuse_layout.h"
#include "agents/evaluation/rule_check.h"
#include "agents/evaluation/suite.h"
#include "agents/tasks/vocabulary.h"
#include "scripting/base/error.h"
#include "tests/support/recompute_rules.h"
#include "tests/support/source_path.h"

namespace sluice {
namespace {

TEST(ReuseLayout, SegmentsAreWholeBlocksWithNewTextBetween) {
  for (const int tokens : {600, 1024, 4000, 8192, 16000}) {
    for (const int segment : {128, 1000, 4096}) {
      const ReuseLayout layout{.segment = segment, .share = 0.9, .least = 4};
      const std::vector<Segment> segments = segments_of(layout, tokens, 64);
      ASSERT_FALSE(segments.empty()) << tokens;
      int before = 0;
      int copied = 0;
      for (const Segment& each : segments) {
        EXPECT_GT(each.first, before) << "new text stands before it";
        EXPECT_EQ((each.end - each.first) % 64, 0);
        EXPECT_LE(each.end - each.first, std::max(64, segment));
        before = each.end;
        copied += each.end - each.first;
      }
      EXPECT_LT(before, tokens);
      EXPECT_LE(copied, 0.9 * tokens);
      EXPECT_GE(copied, 0.9 * tokens - std::max(segment, 64 * 4)) << tokens << " in " << segment;
      if (tokens >= 2000) EXPECT_GE(segments.size(), 3U);
    }
  }
  EXPECT_TRUE(segments_of({}, 100, 128).empty());
}

TEST(ReuseLayout, EdgesDivideWhatAnswersSayTogether) {
  const std::string json = R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, "d": 4,
    "=": 5, "x": 6}}, "pre_tokenizer": {"type": "WhitespaceSplit"}})";
  const auto tokenizer = parse_tokenizer(json, "words");
  const auto cuts = [&](const std::string& document, const std::vector<std::string>& answers) {
    return cuts_of_answers(tokenizer->encode(document), answers, *tokenizer);
  };
  EXPECT_EQ(cuts("x x a = b x x c d x", {"a b"}), (std::vector<int>{4})) << "with a word between";
  EXPECT_EQ(cuts("x x a = b x x x c d x", {"a b c d"}), (std::vector<int>{4, 9}));
  EXPECT_EQ(cuts("x x a = b x x c d x", {"c d", "d c"}), (std::vector<int>{8})) << "in the order of the answer";
  EXPECT_EQ(cuts("a b x a b x x", {"a b"}), (std::vector<int>{1, 4}));
  EXPECT_TRUE(cuts("a b x a b x a b", {"a b"}).empty()) << "everywhere";
  EXPECT_TRUE(cuts("a x x x b", {"a b"}).empty()) << "too far apart";
  EXPECT_TRUE(cuts("a b", {"a"}).empty());
}

TEST(ReuseLayout, SegmentsBeginWhereSomebodyMayAsk) {
  const std::vector<int> cuts = {30, 700, 1100, 1500, 1510, 3900};
  const std::vector<Segment> segments = segments_of({.segment = 512, .share = 0.9, .least = 4}, 4000, 64, cuts);
  int at_cuts = 0;
  int before = 0;
  int copied = 0;
  for (const Segment& each : segments) {
    EXPECT_GE(each.first, before == 0 ? 1 : before + 16);
    if (before == 0) EXPECT_LT(each.first, 8) << "no page before it is full";
    EXPECT_EQ((each.end - each.first) % 64, 0);
    before = each.end;
    copied += each.end - each.first;
    at_cuts += static_cast<int>(std::count(cuts.begin(), cuts.end(), each.first));
  }
  EXPECT_LE(before + 16, 4000);
  EXPECT_GE(at_cuts, 3);
  EXPECT_GE(copied, 3000);
}

TEST(ReuseLayout, WhatIsKnownHasTheSegmentsInTheOppositeOrder) {
  std::vector<int32_t> document(1000);
  for (size_t i = 0; i < document.size(); ++i) document[i] = static_cast<int32_t>(i);
  const std::vector<Segment> segments = segments_of({.segment = 128, .share = 0.8, .least = 2}, 1000, 64);
  const std::vector<KnownText> texts = known_texts(Occasion::kOneText, document, segments);
  ASSERT_EQ(texts.size(), 1U);
  const KnownText& known = texts.front();
  EXPECT_EQ(known.tokens.size(), document.size());
  ASSERT_EQ(known.segments.size(), segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& there = known.segments[segments.size() - 1 - i];
    EXPECT_TRUE(std::equal(known.tokens.begin() + there.first, known.tokens.begin() + there.end,
                           document.begin() + segments[i].first, document.begin() + segments[i].end));
    if (i > 0) EXPECT_LT(there.first, known.segments[segments.size() - i].first);
  }
  std::vector<int32_t> sorted = known.tokens;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, document) << "nothing else, and all of it";
}

TEST(ReuseLayout, ChatsDocumentsAndAgentsKnowEachSegmentOnce) {
  std::vector<int32_t> document(1000);
  for (size_t i = 0; i < document.size(); ++i) document[i] = static_cast<int32_t>(i);
  const std::vector<Segment> segments = segments_of({.segment = 128, .share = 0.8, .least = 2}, 1000, 64);
  const auto is_segment = [&](std::span<const int32_t> text, size_t place) {
    return std::equal(text.begin(), text.end(), document.begin() + segments[place].first, document.begin() + segments[place].end);
  };
  const std::vector<KnownText> chat = known_texts(Occasion::kChat, document, segments);
  ASSERT_EQ(chat.size(), 1U);
  ASSERT_EQ(chat.front().segments.size(), segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& there = chat.front().segments[i];
    EXPECT_TRUE(is_segment(std::span(chat.front().tokens).subspan(size_t(there.first), size_t(there.end - there.first)), i));
    EXPECT_NE(there.first, segments[i].first) << "it moves";
    EXPECT_EQ(there.extra_key, name_of_segment(Occasion::kChat, i));
  }
  const std::vector<KnownText> documents = known_texts(Occasion::kRetrieval, document, segments);
  const std::vector<KnownText> agents = known_texts(Occasion::kAgents, document, segments);
  ASSERT_EQ(documents.size(), segments.size());
  ASSERT_EQ(agents.size(), segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    ASSERT_EQ(documents[i].segments.size(), 1U);
    const Segment& there = documents[i].segments.front();
    EXPECT_TRUE(is_segment(std::span(documents[i].tokens).subspan(size_t(there.first), size_t(there.end - there.first)), i));
    EXPECT_EQ(there.extra_key, name_of_segment(Occasion::kRetrieval, i));
    EXPECT_TRUE(agents[i].segments.empty());
    EXPECT_TRUE(is_segment(std::span(agents[i].answer).first(agents[i].answer.size() - 1), i));
    EXPECT_EQ(agents[i].answer_key, name_of_segment(Occasion::kAgents, i));
    if (i > 0) EXPECT_NE(documents[i].segments.front().extra_key, documents[0].segments.front().extra_key);
  }
}

TEST(RuleCheck, ShippedRulesAgreeWithTheReference) {
  for (const std::string& name : shipped_flows("recompute"))
    EXPECT_EQ(check_rule_against_reference(testing::shipped_rule(name, 8)->rule()), std::nullopt) << name;
}

class ReuseRunnerTest : public ::testing::Test {
 protected:
  ReuseRunnerTest()
      : device_(create_device("cpu", 2)),
        model_(load_model(path(), *device_)),
        tokenizer_(load_tokenizer(path())),
        vocabulary_(load_vocabulary(path())),
        context_{*tokenizer_, &*vocabulary_, model_->config().max_positions, model_->config().vocabulary},
        runner_(*device_, *model_, *tokenizer_, {.segment = 256}) {}

  static std::string path() { return testing::source_path("host/models/mini").string(); }
  static FlowScript script(const std::string& name) { return read_flow(name); }

  Report judged(const std::vector<std::string>& flows, const std::string& task) {
    class Quiet final : public Progress {
     public:
      void start(double) override {}
      void show(const std::string&, const std::string&, const std::string&) override {}
      void advance(double) override {}
      void shrink(double) override {}
      void finish() override {}
    } progress;
    const Suite suite = changed(load_suite("reuse"), {.samples = 4, .tasks = {task}, .tokens = {1024}});
    EXPECT_TRUE(suite.reuse);
    std::vector<Contestant> contestants;
    for (const std::string& name : flows) contestants.push_back({name, script(name)});
    return run_cascade(suite, contestants, runner_, context_, Seed::parse("reuse"), progress);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<MiniVocabulary> vocabulary_;
  TaskContext context_;
  ReuseRunner runner_;
};

TEST_F(ReuseRunnerTest, SegmentsAreFoundWhereverTheyStoodBefore) {
  for (const char* task : {"chat", "rag", "agents"}) {
    const Report report = judged({"none"}, task);
    ASSERT_EQ(report.flows.size(), 1U);
    const FlowReport& flow = report.flows.front();
    EXPECT_EQ(flow.status, FlowStatus::kPassed) << task << ": " << flow.message;
    ASSERT_TRUE(flow.speed) << flow.untimed;
    EXPECT_LT(flow.speed->pages_read, 0.45) << task << ": of so short a text edges between words leave out a part";
  }
}

TEST_F(ReuseRunnerTest, EverythingComputedAgainAnswersAsDenseAttentionDoes) {
  const Report report = judged({"all", "none", "sparsex"}, "needle_multiquery");
  ASSERT_EQ(report.flows.size(), 3U);
  for (const FlowReport& flow : report.flows) {
    EXPECT_EQ(flow.status, FlowStatus::kPassed) << flow.name << ": " << flow.message;
    ASSERT_TRUE(flow.speed) << flow.untimed;
    EXPECT_TRUE(flow.score);
  }
  EXPECT_EQ(report.flows[0].tasks.at(0).accuracy, report.dense.at(0).accuracy);
  EXPECT_EQ(report.flows[0].tasks.at(0).lost, 0);
  EXPECT_GT(report.flows[0].speed->pages_read, 0.99);
  EXPECT_LT(report.flows[1].speed->pages_read, 0.3) << "nine tenths are copied";
  EXPECT_LT(report.flows[2].speed->pages_read, 0.6);
  ASSERT_FALSE(report.notes.empty());
}

TEST_F(ReuseRunnerTest, FlowsThatSayNothingOfCopiesAreRefused) {
  EXPECT_THROW(runner_.prepare(script("quest")), InputError);
  EXPECT_NO_THROW(runner_.prepare(script("epic")));
}

TEST_F(ReuseRunnerTest, DocumentsWithoutSegmentsAreRefused) {
  Suite suite = changed(load_suite("reuse"), {.samples = 1, .tasks = {"needle_multiquery"}, .tokens = {256}});
  TextReader texts;
  EXPECT_THROW(prepare_suite(suite, context_, texts), InputError) << "before anything is computed";
  DocumentBatches batches(suite.stages[0].tasks[0], context_, Seed::parse("reuse"), 1);
  EXPECT_THROW(runner_.prefill(batches.next()), InputError);
}

}  // namespace
}  // namespace sluice
