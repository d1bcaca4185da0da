#include "agents/tasks/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "agents/tasks/chat.h"
#include "agents/tasks/salad_layout.h"
#include "agents/tasks/scoring.h"
#include "scripting/base/error.h"
#include "tests/tasks/english_solver.h"
#include "tests/tasks/fixtures.h"
#include "tests/tasks/mini_solver.h"

namespace sluice::test {
namespace {

class EveryTask : public testing::TestWithParam<std::string> {
 protected:
  const Task& task() const { return find_task(GetParam()); }
  TaskContext mini() const { return {tokenizer_, &mini_vocabulary(), 0}; }
  TaskContext english() const { return {tokenizer_, nullptr}; }
  /// Of the dialects that have the task.
  std::vector<TaskContext> contexts() const {
    return task().in_mini ? std::vector<TaskContext>{mini(), english()} : std::vector<TaskContext>{english()};
  }
  /// Enough for tasks of many segments, where others need no more than `tokens`.
  int long_enough(int tokens) const {
    return tokens * (GetParam() == "salad_very_hard" ? 3 : GetParam() == "salad_medium" ? 2 : 1);
  }
  static Seed seed(int i) { return Seed::parse("test " + std::to_string(i)); }

  CountingTokenizer tokenizer_;
};

using EveryMiniTask = EveryTask;

/// Llama 3's special tokens, each one token; where `adds_begin`, any text begins with <|begin_of_text|>, as its tokenizer.json
/// has it.
class LlamaTokenizer : public Tokenizer {
 public:
  explicit LlamaTokenizer(bool adds_begin) : adds_begin_(adds_begin) {}

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens = encode_as_written(text);
    if (adds_begin_) tokens.insert(tokens.begin(), 0);
    return tokens;
  }
  std::vector<int32_t> encode_as_written(std::string_view text) const override {
    std::vector<int32_t> tokens;
    while (!text.empty()) {
      const size_t special = std::min(text.find("<|"), text.size());
      for (const int32_t id : words_.encode(text.substr(0, special))) tokens.push_back(id + kSpecial);
      text.remove_prefix(special);
      if (text.empty()) break;
      const size_t end = text.find("|>") + 2;
      tokens.push_back(id_of(text.substr(0, end)));
      text.remove_prefix(end);
    }
    return tokens;
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    const bool is_begin = ids.size() == 1 && ids.front() == 0 && !skip_special;
    return is_begin ? std::string(kSpecials.front()) : std::string();
  }
  int vocabulary() const override { return words_.vocabulary(); }
  int32_t id_of(std::string_view token) const override {
    const auto found = std::find(kSpecials.begin(), kSpecials.end(), token);
    return found == kSpecials.end() ? -1 : static_cast<int32_t>(found - kSpecials.begin());
  }

 private:
  static constexpr std::array<std::string_view, 4> kSpecials = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                                                "<|eot_id|>"};
  static constexpr int32_t kSpecial = kSpecials.size();

  bool adds_begin_;
  CountingTokenizer words_;
};

std::vector<std::string> sorted_words(const std::string& text) {
  auto words = words_of(text);
  std::sort(words.begin(), words.end());
  return words;
}

/// Equal as the sample's scoring has it.
void expect_answer(const Sample& sample, const std::string& found) {
  if (sample.scoring == Scoring::kSet) {
    EXPECT_EQ(sorted_words(found), sorted_words(sample.answer));
  } else {
    EXPECT_EQ(found, sample.answer);
  }
}

TEST_P(EveryMiniTask, AnswerFollowsFromThePrompt) {
  for (const int shortest : {300, 1024, 2051, 8192}) {
    const int tokens = long_enough(shortest);
    for (int i = 0; i < 5; ++i) {
      Rng rng(seed(i), GetParam());
      for (const Sample& sample : task().generate(mini(), rng, tokens, 4)) expect_answer(sample, solve_mini(sample.prompt));
    }
  }
}

TEST_P(EveryMiniTask, PromptsHaveExactlyTheLengthAskedFor) {
  for (int tokens = long_enough(290); tokens < long_enough(290) + 40; ++tokens) {
    Rng rng(seed(tokens), GetParam());
    for (const Sample& sample : task().generate(mini(), rng, tokens, 3)) {
      ASSERT_EQ(words_of(sample.prompt).size(), static_cast<size_t>(tokens));
    }
  }
}

TEST_P(EveryMiniTask, UsesOnlyWordsOfTheVocabulary) {
  const auto tokenizer = load_tokenizer(SLUICE_SOURCE_DIR "/host/models/mini");
  const int32_t unknown = tokenizer->id_of("<unk>");
  Rng rng(seed(1), GetParam());
  const Sample sample = generate(task(), mini(), rng, 1024);
  const auto prompt = tokenizer->encode(sample.prompt);
  EXPECT_EQ(prompt.size(), 1024U);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), unknown), 0);
  const auto answer = tokenizer->encode(sample.answer);
  EXPECT_EQ(std::count(answer.begin(), answer.end(), unknown), 0);
  EXPECT_EQ(answer.size() + 1, static_cast<size_t>(sample.max_tokens)) << "the answer and <eos>";
}

/// Words of the parts of an answer that the documentation tells (docs/TASKS.md), in both dialects; 0: a word each.
int part_words(const std::string& task, bool english) {
  if (task == "trace") return english ? 10 : 8;
  if (english) return 1;
  const bool asks_facts = task == "needle_multiquery" || task == "chat" || task == "rag";
  return asks_facts ? 7 : task.starts_with("salad") ? 5 : 1;
}

TEST_P(EveryMiniTask, PartsOfAnswersEndWhereStatementsDo) {
  Rng rng(seed(2), GetParam());
  const Sample sample = generate(task(), mini(), rng, 2048);
  EXPECT_EQ(sample.part_words, part_words(GetParam(), false));
  const auto words = words_of(sample.answer);
  const auto part = static_cast<size_t>(sample.part_words);
  if (part == 1) return;
  for (size_t word = 0; word < words.size(); ++word) EXPECT_EQ(words[word] == ";", word % part == part - 1) << sample.answer;
}

TEST_P(EveryTask, EnglishAnswersHaveWholeParts) {
  Rng rng(seed(2), GetParam());
  for (const Sample& sample : task().generate(english(), rng, 2048, 2)) {
    EXPECT_EQ(sample.part_words, part_words(GetParam(), true));
    const auto words = normalised_words(sample.answer, sample.items);
    EXPECT_EQ(words.size() % static_cast<size_t>(sample.part_words), 0U) << sample.answer;
  }
}

TEST_P(EveryTask, EnglishAnswerFollowsFromThePrompt) {
  for (const int shortest : {700, 1024, 4096}) {
    const int tokens = long_enough(shortest);
    for (int i = 0; i < 3; ++i) {
      Rng rng(seed(i), GetParam());
      for (const Sample& sample : task().generate(english(), rng, tokens, 4)) expect_answer(sample, solve_english(sample.prompt));
    }
  }
}

TEST_P(EveryTask, EnglishPromptsFillTheLengthToLessThanASentence) {
  const LlamaTokenizer llama(true);
  for (const Tokenizer* tokenizer : {static_cast<const Tokenizer*>(&tokenizer_), static_cast<const Tokenizer*>(&llama)}) {
    for (const int shortest : {700, 1500, 4000}) {
      const int tokens = long_enough(shortest);
      Rng rng(seed(tokens), GetParam());
      size_t longest = 0;
      for (const Sample& sample : task().generate({*tokenizer, nullptr}, rng, tokens, 4)) {
        const size_t length = tokenizer->encode(sample.prompt).size();
        EXPECT_LE(length, static_cast<size_t>(tokens));
        longest = std::max(longest, length);
      }
      EXPECT_GE(longest, static_cast<size_t>(tokens) - 60);
    }
  }
}

TEST_P(EveryTask, EnglishAnswerScoresAsCorrectHoweverItIsSpelled) {
  Rng rng(seed(3), GetParam());
  const Sample sample = generate(task(), english(), rng, long_enough(1024));
  std::string spelled = " ";
  for (const char c : sample.answer) spelled += c == ' ' && GetParam() != "trace" ? std::string(", ") : std::string(1, c);
  EXPECT_TRUE(score(sample, spelled + "." + sample.stop + " And that is all.", false).is_whole()) << spelled;
  EXPECT_FALSE(score(sample, " I cannot tell.", true).is_whole());
}

TEST_P(EveryTask, SameSeedGivesTheSameSampleAndOtherSeedsOthers) {
  for (const TaskContext& context : contexts()) {
    std::set<std::string> prompts;
    for (int i = 0; i < 10; ++i) {
      Rng first(seed(i), "stream");
      Rng second(seed(i), "stream");
      const Sample sample = generate(task(), context, first, long_enough(1024));
      const Sample again = generate(task(), context, second, long_enough(1024));
      EXPECT_EQ(sample.prompt, again.prompt);
      EXPECT_EQ(sample.answer, again.answer);
      prompts.insert(sample.prompt);
    }
    EXPECT_EQ(prompts.size(), 10U);
  }
}

TEST_P(EveryTask, QuestionsShareTheirDocument) {
  for (const TaskContext& context : contexts()) {
    Rng rng(seed(5), GetParam());
    const auto samples = task().generate(context, rng, 2048, 4);
    ASSERT_FALSE(samples.empty());
    ASSERT_LE(samples.size(), 4U);
    for (const Sample& sample : samples) {
      const auto same =
          std::mismatch(sample.prompt.begin(), sample.prompt.end(), samples[0].prompt.begin(), samples[0].prompt.end());
      EXPECT_GT(same.first - sample.prompt.begin(), static_cast<std::ptrdiff_t>(sample.prompt.size() * 9 / 10));
    }
  }
}

TEST_P(EveryTask, TooShortAContextIsRefusedWithTheLengthThatWouldDo) {
  for (const TaskContext& context : contexts()) {
    for (int tokens = 0; tokens < 300; tokens += 7) {
      Rng rng(seed(tokens), GetParam());
      try {
        generate(task(), context, rng, tokens);
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(GetParam()), std::string::npos) << error.what();
      }
    }
    Rng rng(seed(0), GetParam());
    EXPECT_THROW(generate(task(), context, rng, 8), InputError);
  }
}

std::vector<std::string> task_names(bool of_mini) {
  std::vector<std::string> names;
  for (const Task& task : all_tasks()) {
    if (task.in_mini || !of_mini) names.push_back(task.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Tasks, EveryTask, testing::ValuesIn(task_names(false)), [](const auto& of) { return of.param; });
INSTANTIATE_TEST_SUITE_P(Tasks, EveryMiniTask, testing::ValuesIn(task_names(true)), [](const auto& of) { return of.param; });

TEST(Task, ThatTheMiniDialectLacksIsRefusedThere) {
  const CountingTokenizer tokenizer;
  Rng rng(Seed::parse("x"), "x");
  for (const char* name : {"needle_single", "needle_multikey", "common_words", "frequent_words"}) {
    EXPECT_THROW(generate(find_task(name), {tokenizer, &mini_vocabulary()}, rng, 1024), InputError) << name;
  }
}

// A page that has a word of what is asked for need not be one that answers: more of them have one than a flow selects.
TEST(MiniDocument, WordsOfTheQuestionStandInManyPlaces) {
  const CountingTokenizer tokenizer;
  Rng rng(Seed::parse("hay"), "hay");
  const auto words = words_of(generate(find_task("needle_multiquery"), {tokenizer, &mini_vocabulary()}, rng, 8192).prompt);
  const std::string key = words.at(words.size() - 2);
  EXPECT_GT(std::count(words.begin(), words.end(), key), 30);
  EXPECT_GT(std::count(words.begin(), words.end(), "key"), 300);
}

TEST(Needles, LieUniformlyOverTheDocument) {
  const CountingTokenizer tokenizer;
  const TaskContext context{tokenizer, &mini_vocabulary()};
  constexpr int kSamples = 2000;
  constexpr int kParts = 10;
  constexpr int kQuestion = 6;
  constexpr int kStatement = 8;
  constexpr int kLines = 60;
  constexpr int kTokens = 1 + kLines * kStatement + kQuestion;  // or a line fewer, and as many words before the first
  std::vector<int> parts(kParts, 0);
  for (int i = 0; i < kSamples; ++i) {
    Rng rng(Seed::parse("needles"), std::to_string(i));
    const auto words = words_of(generate(find_task("needle_multiquery"), context, rng, kTokens).prompt);
    const std::vector<std::string> asked = {"key", words.at(words.size() - 2)};
    const auto place = std::search(words.begin(), words.end(), asked.begin(), asked.end());
    ASSERT_NE(place, words.end());
    const auto line = (words.end() - place - kQuestion) / kStatement - 1;  // from the end
    ++parts.at(static_cast<size_t>(line * kParts / kLines));
  }
  // Chi-squared with 9 degrees of freedom: 27.9 has probability 0.001.
  double chi = 0;
  for (const int count : parts) chi += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi, 27.9);
}

TEST(Trace, AsksForLongAndShortOnesOfMoreStepsInLongerTexts) {
  struct Row {
    int tokens;
    std::multiset<size_t> steps;
  };
  const CountingTokenizer tokenizer;
  for (const Row& row :
       {Row{300, {24}}, {512, {24, 8, 6}}, {1024, {24, 8, 6}}, {2048, {32, 8, 6}}, {4096, {64, 16, 8}}, {16384, {64, 16, 8}}}) {
    Rng rng(Seed::parse("trace"), "long");
    std::multiset<size_t> steps;
    for (const Sample& sample : find_task("trace").generate({tokenizer, &mini_vocabulary()}, rng, row.tokens, 3)) {
      steps.insert(words_of(sample.answer).size() / 8);
    }
    EXPECT_EQ(steps, row.steps) << row.tokens;
  }
}

TEST(Trace, AsksOneQuestionOfAnyLength) {
  const CountingTokenizer tokenizer;
  std::set<size_t> steps;
  for (int i = 0; i < 40; ++i) {
    Rng rng(Seed::parse("trace"), std::to_string(i));
    steps.insert(words_of(generate(find_task("trace"), {tokenizer, &mini_vocabulary()}, rng, 2048).answer).size() / 8);
  }
  EXPECT_EQ(steps, (std::set<size_t>{6, 8, 32}));
}

TEST(Trace, MostStepsRecallEarlierOutput) {
  const CountingTokenizer tokenizer;
  Rng rng(Seed::parse("trace"), "recall");
  int recalls = 0;
  int steps = 0;
  for (const Sample& sample : find_task("trace").generate({tokenizer, &mini_vocabulary()}, rng, 2048, 3)) {
    const auto words = words_of(sample.answer);
    for (size_t step = 0; step < words.size(); step += 8, ++steps) recalls += words[step + 1] != words[step + 3];
  }
  EXPECT_GT(recalls, steps / 2);
  EXPECT_LT(recalls, steps);
}

TEST(Salad, LayoutKeepsItsPromises) {
  std::set<std::string> patterns;
  for (int i = 0; i < 300; ++i) {
    Rng rng(Seed::parse("salad"), std::to_string(i));
    const int lines = 16 + i * 3;
    const SaladLayout layout = salad_layout(rng, lines);
    patterns.insert(layout.pattern);
    ASSERT_EQ(layout.lines.size(), static_cast<size_t>(lines));
    EXPECT_GE(layout.topics, 2);
    EXPECT_LE(layout.topics, 12);
    EXPECT_GE(layout.attributes, 4);
    EXPECT_LE(layout.attributes, 40);
    std::set<std::pair<int, int>> told;
    int topic = -1;
    for (const auto& line : layout.lines) {
      if (line.kind == SaladLayout::Line::Kind::kHeader) topic = line.topic;
      if (line.kind != SaladLayout::Line::Kind::kAttribute) continue;
      EXPECT_EQ(line.topic, topic) << "an attribute outside a segment of its topic";
      EXPECT_TRUE(told.emplace(line.topic, line.attribute).second);
    }
    EXPECT_EQ(told.size(), static_cast<size_t>(layout.topics * layout.attributes));
  }
  EXPECT_EQ(patterns, (std::set<std::string>{"ABAB", "AABBAABB", "ABCABC", "AAABBBCCC"}));
}

// A document is one pattern: topics follow each other in its order, in segments of equal length.
TEST(Salad, DifficultiesFollowThePapersPatterns) {
  for (const std::string_view pattern : {kSaladEasy, kSaladMedium, kSaladHard, kSaladVeryHard}) {
    for (int i = 0; i < 60; ++i) {
      Rng rng(Seed::parse("salad"), std::string(pattern) + std::to_string(i));
      const int lines = least_salad_lines(pattern) + i * i;
      const SaladLayout layout = salad_layout_of(rng, lines, pattern);
      ASSERT_EQ(layout.lines.size(), static_cast<size_t>(lines));
      std::string segments;
      std::vector<int> begins;
      std::set<std::pair<int, int>> told;
      for (int at = 0; at < lines; ++at) {
        const SaladLayout::Line& line = layout.lines[static_cast<size_t>(at)];
        if (line.kind == SaladLayout::Line::Kind::kHeader) {
          segments += static_cast<char>('A' + line.topic);
          begins.push_back(at);
        }
        if (line.kind != SaladLayout::Line::Kind::kAttribute) continue;
        EXPECT_EQ('A' + line.topic, segments.back());
        EXPECT_TRUE(told.emplace(line.topic, line.attribute).second);
      }
      EXPECT_EQ(segments, pattern);
      for (size_t segment = 1; segment < begins.size(); ++segment) {
        EXPECT_EQ(begins[segment] - begins[segment - 1], lines / static_cast<int>(pattern.size()));
      }
      EXPECT_GE(layout.attributes, 4);
      EXPECT_EQ(told.size(), static_cast<size_t>(layout.topics * layout.attributes));
    }
  }
}

TEST(ChatFormat, BeginsOnceWhoeverAddsTheBeginning) {
  for (const bool adds_begin : {true, false}) {
    const LlamaTokenizer tokenizer(adds_begin);
    const ChatFormat chat = chat_format(tokenizer, nullptr, Thinking::kAllowed);
    const auto tokens = tokenizer.encode(chat.before + "Hello." + chat.after);
    EXPECT_EQ(tokens.front(), 0);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 0), 1) << adds_begin;
    EXPECT_EQ(special_tokens(tokenizer), adds_begin ? 1 : 0);
  }
}

TEST(ChatFormat, IsThatOfTheModelsOwnTemplate) {
  const ChatTemplate chat_template(
      "{{ bos_token }}{% for m in messages %}<|start_header_id|> {{ m.role }} {{ m.content|trim }}{% endfor %}<|eot_id|>"
      "{% if enable_thinking is false %} thought on {{ strftime_now('%Y') }}{% endif %}",
      "t", {"<|begin_of_text|>", "", "", ""});
  const CountingTokenizer words;
  const ChatFormat skipped = chat_format(words, &chat_template, Thinking::kSkipped);
  EXPECT_EQ(skipped.before, "<|begin_of_text|><|start_header_id|> user ");
  EXPECT_EQ(skipped.after, "<|eot_id|> thought on 2024");
  EXPECT_EQ(chat_format(words, &chat_template, Thinking::kAllowed).after, "<|eot_id|>");
  const ChatTemplate deaf("x", "t", {});
  EXPECT_THROW(chat_format(words, &deaf, Thinking::kAllowed), InputError);
}

TEST(ChatFormat, WhatTheTokenizerAddsIsNotWrittenTwice) {
  for (const bool adds_begin : {false, true}) {
    const LlamaTokenizer tokenizer(adds_begin);
    const ChatTemplate chat_template("{{ bos_token }}{{ messages[0].content }}<|eot_id|>", "t",
                                     {"<|begin_of_text|>", "", "", ""});
    const ChatFormat chat = chat_format(tokenizer, &chat_template, Thinking::kAllowed);
    const auto tokens = tokenizer.encode(chat.before + "Hello." + chat.after);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 0), 1) << adds_begin;
  }
}

TEST(ChatFormat, BaseModelsGetNone) {
  const ChatFormat chat = chat_format(CountingTokenizer(), nullptr, Thinking::kSkipped);
  EXPECT_EQ(chat.before, "");
  EXPECT_EQ(chat.after, "\n");
}

TEST(FindTask, ListsTheNamesForAnUnknownOne) {
  try {
    find_task("needles");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("\"needles\""), std::string::npos);
    EXPECT_NE(error.hint().find("needle_multikey"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::test
