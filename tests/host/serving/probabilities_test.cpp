// Log-probabilities of what an engine generates, and of texts that it is fed, against the logits that it keeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "host/serving/random.h"
#include "kernels/device/random.h"
#include "scripting/base/error.h"
#include "tests/host/serving/tiny_engine.h"
#include "tests/support/log_softmax.h"

namespace sluice {
namespace {

class EngineProbabilities : public testing::TinyEngineTest {
 protected:
  /// A text of `tokens`, the last `fed` of which are given.
  Request text(int tokens, int fed, int salt = 0) const {
    Request made = request(tokens, fed, salt);
    made.ignore_eos = false;
    made.given.assign(made.prompt.end() - fed, made.prompt.end());
    made.prompt.resize(made.prompt.size() - static_cast<size_t>(fed));
    made.likely = 0;
    return made;
  }

  std::vector<RequestResult> run(const Plan* plan, const EngineOptions& with, const std::vector<Request>& requests) {
    Engine engine(*device_, *model_, plan, with);
    for (const Request& each : requests) engine.submit(each);
    std::vector<RequestResult> results(requests.size());
    for (RequestResult& result : engine.run_all()) results[result.id - 1] = std::move(result);
    return results;
  }

  /// What the logits of row `row` give to `token`.
  double wanted(const RequestResult& result, size_t row, int32_t token) const {
    const auto columns = static_cast<size_t>(tiny_.vocabulary);
    const auto all = testing::log_softmax<float>(std::span(result.logits).subspan(row * columns, columns));
    return all[static_cast<size_t>(token)];
  }
};

TEST_F(EngineProbabilities, OfATextAreThoseOfItsLogits) {
  const Plan quest = plan_of(testing::kQuest);
  const Plan stateful = plan_of(testing::kStateful);
  for (const Plan* plan : {static_cast<const Plan*>(nullptr), &quest, &stateful}) {
    std::vector<Request> requests{text(90, 1), text(100, 30, 1), text(66, 65, 2)};
    const auto fed = run(plan, options(), requests);
    for (Request& each : requests) each.want_logits = true;
    const auto kept = run(plan, options(), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(fed[i].tokens, requests[i].given);
      EXPECT_EQ(fed[i].reason, FinishReason::kLength);
      ASSERT_EQ(fed[i].probabilities.of_tokens.size(), requests[i].given.size());
      EXPECT_EQ(fed[i].probabilities.of_tokens, kept[i].probabilities.of_tokens);
      for (size_t token = 0; token < requests[i].given.size(); ++token) {
        const size_t row = requests[i].prompt.size() - 1 + token;
        EXPECT_NEAR(fed[i].probabilities.of_tokens[token], wanted(kept[i], row, requests[i].given[token]), 1e-5);
      }
    }
  }
}

/// Whether a selection of `keep` pages by chance, and the first and the last one, has page `page`.
bool is_drawn(uint64_t seed, int layer, int kv_head, int tokens, int page, int keep) {
  const int pages = (tokens + 7) / 8;
  if (page == 0 || page == pages - 1 || pages <= keep + 2) return true;
  const uint64_t key = random_key(seed, RandomPurpose::kRandom, layer, kv_head, tokens);
  std::vector<int> order(static_cast<size_t>(pages - 2));
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return random_uniform(key, static_cast<uint64_t>(a)) > random_uniform(key, static_cast<uint64_t>(b));
  });
  return std::find(order.begin(), order.begin() + keep, page) != order.begin() + keep;
}

TEST_F(EngineProbabilities, UnderSelectionsAreThoseOfFloat64) {
  const Request fed = [this] {
    Request made = text(150, 70);
    made.sampling.seed = 11;
    return made;
  }();
  EngineOptions with = options();
  with.seed = 5;
  const uint64_t seed = mix(with.seed, fed.sampling.seed);
  const auto prompt = static_cast<int>(fed.prompt.size());
  struct Selection {
    const char* source;
    std::function<bool(int layer, int kv_head, int tokens, int page)> has;
  };
  const Selection selections[] = {
      {R"(local flow = sluice.flow { name = "window", page = 8, kv = "f32" }
          function flow.index(q, c) return sluice.window { first = 1, last = 3 } end
          return flow)",
       [](int, int, int tokens, int page) { return page == 0 || page >= (tokens + 7) / 8 - 3; }},
      {R"(local flow = sluice.flow { name = "random", page = 8, kv = "f32" }
          function flow.index(q, c) return sluice.topk(sluice.random(), { k = 4, first = 1, last = 1 }) end
          return flow)",
       [&](int layer, int head, int tokens, int page) { return is_drawn(seed, layer, head, tokens, page, 4); }}};
  std::vector<int> tokens(fed.prompt.begin(), fed.prompt.end());
  tokens.insert(tokens.end(), fed.given.begin(), fed.given.end());
  std::set<double> losses;
  for (const Selection& selection : selections) {
    const Plan plan = plan_of(selection.source);
    testing::TinyModel reference = tiny_;
    reference.sees = [&](int layer, int head, int position, int seen) {
      return position < prompt - 1 || selection.has(layer, head, position + 1, seen / 8);  // prompts are dense
    };
    const std::vector<double> logits = reference.logits(tokens);
    const std::vector<float> got = run(&plan, with, {fed})[0].probabilities.of_tokens;
    double loss = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t columns = static_cast<size_t>(tiny_.vocabulary);
      const auto row = std::span(logits).subspan((fed.prompt.size() - 1 + i) * columns, columns);
      EXPECT_NEAR(got[i], testing::log_softmax<double>(row)[static_cast<size_t>(fed.given[i])], 1e-4)
          << plan.graph.name << " " << i;
      loss -= got[i];
    }
    losses.insert(loss);
  }
  EXPECT_EQ(losses.size(), 2U);
}

TEST_F(EngineProbabilities, DoNotDependOnHowATextIsRun) {
  const Plan stateful = plan_of(testing::kStateful);
  const std::vector<Request> requests{text(90, 60), text(100, 30, 1), text(66, 65, 2), text(150, 100, 3)};
  std::optional<std::vector<RequestResult>> first;
  for (const bool ahead : {false, true}) {
    for (const int pages : {256, 30}) {  // the fewer, the more are preempted
      EngineOptions with = options(pages);
      with.run_ahead = ahead;
      auto results = run(&stateful, with, requests);
      if (pages == 30) {
        EXPECT_GT(results[1].preemptions + results[2].preemptions + results[3].preemptions, 0);
      }
      for (size_t i = 0; i < results.size() && first; ++i) {
        EXPECT_EQ(results[i].probabilities.of_tokens, (*first)[i].probabilities.of_tokens) << i;
      }
      if (!first) first = std::move(results);
    }
  }
}

TEST_F(EngineProbabilities, OfAPromptAreThoseOfItsLogits) {
  const Plan quest = plan_of(testing::kQuest);
  for (const Plan* plan : {static_cast<const Plan*>(nullptr), &quest}) {
    std::vector<Request> requests{request(1, 3), request(150, 5, 1), request(64, 1, 2), request(65, 2, 3)};
    for (Request& each : requests) {
      each.prompt_probabilities = true;
      each.likely = 4;
    }
    const auto asked = run(plan, options(), requests);
    for (Request& each : requests) each.want_logits = true;
    const auto kept = run(plan, options(), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const TokenProbabilities& prompt = asked[i].prompt_probabilities;
      ASSERT_EQ(prompt.of_tokens.size(), requests[i].prompt.size() - 1);
      ASSERT_EQ(prompt.likely.size(), 4 * prompt.of_tokens.size());
      EXPECT_EQ(asked[i].tokens, kept[i].tokens);
      for (size_t row = 0; row + 1 < requests[i].prompt.size(); ++row) {
        EXPECT_NEAR(prompt.of_tokens[row], wanted(kept[i], row, requests[i].prompt[row + 1]), 1e-5);
        for (size_t place = 0; place < 4; ++place) {
          const LikelyToken& likely = prompt.likely[4 * row + place];
          EXPECT_NEAR(likely.log_probability, wanted(kept[i], row, likely.token), 1e-5);
        }
      }
      for (size_t token = 0; token < asked[i].tokens.size(); ++token) {  // greedy: the most likely
        EXPECT_EQ(asked[i].probabilities.likely[4 * token].token, asked[i].tokens[token]);
        EXPECT_EQ(asked[i].probabilities.likely[4 * token].log_probability, asked[i].probabilities.of_tokens[token]);
      }
    }
  }
}

TEST_F(EngineProbabilities, AreThereWhenATokenIs) {
  Engine engine(*device_, *model_, nullptr, options());
  Request asked = request(20, 6);
  asked.likely = 2;
  asked.given = {3, 1};
  asked.sampling = {.temperature = 1, .seed = 4};
  asked.prompt_probabilities = true;
  engine.submit(asked);
  std::vector<float> seen;
  std::vector<float> of_prompt;
  engine.on_token([&](uint64_t, const GeneratedToken& generated) {
    ASSERT_NE(generated.probabilities, nullptr);
    EXPECT_EQ(generated.prompt != nullptr, seen.empty()) << "with the first alone";
    if (generated.prompt != nullptr) of_prompt = generated.prompt->of_tokens;
    seen.push_back(generated.probabilities->of_token);
  });
  const auto results = engine.run_all();
  EXPECT_EQ(results[0].tokens.size(), 6U) << "after what is given it goes on by itself";
  EXPECT_EQ(seen, results[0].probabilities.of_tokens);
  EXPECT_EQ(of_prompt, results[0].prompt_probabilities.of_tokens);
  EXPECT_EQ(of_prompt.size(), 19U);
  EXPECT_EQ(results[0].tokens[0], 3);
  EXPECT_EQ(results[0].tokens[1], 1);
}

TEST_F(EngineProbabilities, GivenTokensEndNothing) {
  Request asked = text(40, 20);
  asked.stop_tokens = {asked.given[3]};
  EXPECT_EQ(run(nullptr, options(), {asked})[0].tokens.size(), 20U);
}

TEST_F(EngineProbabilities, RefuseWhatCannotBe) {
  Engine engine(*device_, *model_, nullptr, options());
  const auto refuse = [&](const std::function<void(Request&)>& change) {
    Request asked = text(40, 20);
    change(asked);
    EXPECT_THROW(engine.submit(asked), InputError);
  };
  refuse([](Request& asked) { asked.given.push_back(1); });
  refuse([&](Request& asked) { asked.given[2] = tiny_.vocabulary; });
  refuse([](Request& asked) { asked.given[2] = -1; });
  refuse([](Request& asked) { asked.likely = kMostLikely + 1; });
  Request known = request(40, 1);
  known.want_snapshot = true;
  const auto snapshot = run(nullptr, options(), {known})[0].snapshot;
  refuse([&](Request& asked) {
    asked = request(40, 1);
    asked.snapshot = snapshot;
    asked.prompt_probabilities = true;
  });
}

}  // namespace
}  // namespace sluice
