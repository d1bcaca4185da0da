#include "agents/tasks/text_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>

#include "agents/evaluation/documents.h"
#include "scripting/base/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/fixtures.h"

namespace sluice::test {
namespace {

/// A token a byte, and one before every text.
class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids = {256};
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::vector<int32_t> encode_as_written(std::string_view text) const override {
    std::vector<int32_t> ids = encode(text);
    ids.erase(ids.begin());
    return ids;
  }
  std::string decode(std::span<const int32_t> ids, bool) const override { return {ids.begin(), ids.end()}; }
  int vocabulary() const override { return 257; }
  int32_t id_of(std::string_view) const override { return -1; }
};

TextTokens counted(int tokens) {
  TextTokens text{"counted", {-1}, std::vector<int32_t>(static_cast<size_t>(tokens))};
  std::iota(text.tokens.begin(), text.tokens.end(), 0);
  return text;
}

TEST(TextWindows, ScoreNoTokenTwice) {
  EXPECT_EQ(windows_in(counted(300), 302), 0);
  EXPECT_EQ(windows_in(counted(300), 301), 1) << "the token before it is the tokenizer's";
  EXPECT_EQ(windows_in(counted(427), 301), 1);
  EXPECT_EQ(windows_in(counted(428), 301), 2);
  const TextTokens text = counted(5000);
  Rng rng(Seed::parse("x"), "windows");
  const std::vector<int> places = draw_windows(text, 1024, 1000, rng);
  EXPECT_EQ(places.size(), static_cast<size_t>(windows_in(text, 1024))) << "as many as there are";
  std::set<int32_t> scored;
  for (const int place : places) {
    const Sample sample = text_sample(TextTask::kText, text, 1024, place, rng);
    EXPECT_EQ(sample.tokens.size() + sample.given.size(), 1024U);
    EXPECT_EQ(sample.tokens.front(), -1);
    EXPECT_EQ(sample.given.front(), sample.tokens.back() + 1) << "the text goes on";
    EXPECT_EQ(sample.max_tokens, kScoredOfText);
    for (const int32_t token : sample.given) EXPECT_TRUE(scored.insert(token).second);
  }
}

TEST(TextWindows, LongerOnesBeginWhereShorterOnesDo) {
  const TextTokens text = counted(200000);
  const auto draw = [&](int window) {
    Rng rng(Seed::parse("x"), "windows");
    const std::vector<int> places = draw_windows(text, window, 64, rng);
    return std::set<int>(places.begin(), places.end());
  };
  const std::set<int> shorter = draw(2048);
  EXPECT_EQ(shorter.size(), 64U);
  int shared = 0;
  for (const int place : draw(8192)) shared += static_cast<int>(shorter.count(place));
  EXPECT_GE(shared, 58) << "but for the few that would end beyond the text";
}

TEST(TextWindows, ACopyStandsInTheFirstThreeQuarters) {
  const TextTokens text = counted(4000);
  for (const int length : {kLeastWindow, 300, 383, 512, 2048}) {
    std::set<int32_t> passages;
    for (int i = 0; i < 100; ++i) {
      Rng rng(Seed::parse("x"), "copy " + std::to_string(i));
      const Sample sample = text_sample(TextTask::kCopy, text, length, 3, rng);
      std::vector<int32_t> window = sample.tokens;
      window.insert(window.end(), sample.given.begin(), sample.given.end());
      ASSERT_EQ(window.size(), static_cast<size_t>(length));
      EXPECT_EQ(sample.given.size(), static_cast<size_t>(kScoredOfCopy));
      const auto passage = window.end() - kCopiedPassage;
      const auto first = std::search(window.begin(), passage, passage, window.end());
      ASSERT_NE(first, passage) << length << ": all of it stands there before";
      EXPECT_LE(first + kCopiedPassage - window.begin(), length * 3 / 4 + 1);
      EXPECT_TRUE(std::is_sorted(window.begin(), passage)) << "what is between is as it was";
      passages.insert(*passage);
    }
    EXPECT_GT(passages.size(), 30U) << length;
  }
}

class TextTasks : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = directory_.path() + "/text.txt";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static Suite suite_of(const std::string& task, int tokens, int samples = 8) {
    return parse_suite(R"([{"task": ")" + task + R"(", "tokens": )" + std::to_string(tokens) + R"(, "samples": )" +
                           std::to_string(samples) + "}]",
                       "texts");
  }
  void expect_refused(const std::function<void()>& what, const std::string& part) {
    try {
      what();
      ADD_FAILURE() << "accepted; wanted " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  testing::TemporaryDirectory directory_;
  const ByteTokenizer tokenizer_;
  TaskContext context_{tokenizer_, nullptr, 4096, 257};
};

TEST_F(TextTasks, OfOneLengthHaveTheSameWindows) {
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "word " + std::to_string(i) + " ";
  const std::string path = write(words);
  const Seed seed = Seed::parse("windows");
  const auto jobs = [&](const std::string& task) {
    Suite suite = suite_of(task + ":" + path, 512);
    TextReader texts;
    prepare_suite(suite, context_, texts);
    DocumentSource source(suite.stages[0].tasks[0], context_, seed);
    std::vector<Job> all;
    for (JobDocument document = source.next(); !document.empty(); document = source.next()) all.push_back(document.at(0));
    return all;
  };
  const std::vector<Job> text = jobs("text");
  const std::vector<Job> copy = jobs("copy");
  ASSERT_EQ(text.size(), 8U);
  ASSERT_EQ(copy.size(), 8U);
  std::set<std::vector<int32_t>> windows;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto& begin = text[i].sample.tokens;
    EXPECT_TRUE(std::equal(begin.begin(), begin.end(), copy[i].sample.tokens.begin())) << "prefilled once";
    windows.insert(begin);
  }
  EXPECT_EQ(windows.size(), 8U);
  EXPECT_EQ(jobs("text").at(3).sample.given, text[3].sample.given) << "they follow from the seed";
}

TEST_F(TextTasks, ThatCannotBeAskedAreRefusedFirst) {
  const auto prepare = [&](const std::string& task, int tokens) {
    Suite suite = suite_of(task, tokens);
    TextReader texts;
    prepare_suite(suite, context_, texts);
  };
  expect_refused([&] { prepare("text:" + write(std::string(400, 'a')), 512); }, "it has 400 tokens of the model, a window 512");
  expect_refused([&] { prepare("text:" + directory_.path() + "/none.txt", 512); }, "none.txt");
  expect_refused([&] { prepare("text:" + write("plain \xff text"), 512); }, "no UTF-8 at byte 6");
  expect_refused([&] { prepare("text:" + write(std::string(9000, 'a')), 5000); }, "5000 tokens exceeds the model's 4096");
  expect_refused([&] { suite_of("copy:" + write(std::string(9000, 'a')), 255); }, "at least 256 tokens");
  SuiteChanges at_128;
  at_128.tokens = {128};
  expect_refused([&] { changed(load_suite("real"), at_128); }, "at least 256 tokens");
  expect_refused([&] { suite_of("text:", 512); }, "names no file");
  context_.vocabulary = 97;
  expect_refused([&] { prepare("text:" + write(std::string(900, 'b')), 512); }, "token 98 is none of the model's 97");
  Suite suite = suite_of("text", 512);
  TextReader texts;
  expect_refused(
      [&] {
        prepare_suite(suite, {tokenizer_, &mini_vocabulary(), 4096, 257}, texts);
      },
      "knows 257 words and no text");
}

TEST_F(TextTasks, OfTheSuiteRealAreThoseThatTheModelHasRoomFor) {
  write("");
  SuiteChanges changes;
  changes.samples = 2;
  changes.tasks = {"needle_single", "salad"};
  Suite suite = changed(load_suite("real"), changes);
  context_.positions = 4096;
  TextReader texts;
  prepare_suite(suite, context_, texts);
  EXPECT_EQ(suite.stages.size(), 2U) << "8192 is left out";
  EXPECT_EQ(suite.stages[0].threshold, 0);
  EXPECT_GT(suite.stages[1].threshold, 0) << "somebody has to judge";
  context_.positions = 1000;
  expect_refused([&] { prepare_suite(suite, context_, texts); }, "the model has 1000 positions");
}

}  // namespace
}  // namespace sluice::test
