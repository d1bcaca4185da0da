#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "host/serving/engine.h"
#include "host/serving/random.h"

namespace sluice::testing {

/// Expects that greedy requests get the tokens that they get where the best token is drawn from logits (a top_k of 1): all of
/// them, or some that end before the others do, so that steps of greedy rows alone come behind others. Rows are more than 64 at
/// their most, and prompts come beside them; passes are the same each time.
inline void expect_greedy_tokens(Device& device, const Model& model) {
  constexpr int kRequests = 70;
  const auto tokens_where = [&](auto is_drawn) {
    EngineOptions options;
    options.pages = kRequests * 8;
    options.max_batch = kRequests;
    options.max_pass_tokens = 300;
    options.prefix_cache = false;
    Engine engine(device, model, nullptr, options);
    for (int i = 0; i < kRequests; ++i) {
      Request request;
      for (int at = 0; at < 1 + i * 7 % 40; ++at) {
        const double uniform = counter_uniform(static_cast<uint64_t>(i), static_cast<uint64_t>(at));
        request.prompt.push_back(static_cast<int32_t>(uniform * model.config().vocabulary));
      }
      request.max_tokens = 30 + i * 5 % 37;
      request.ignore_eos = true;
      if (is_drawn(i)) {
        request.sampling.temperature = 1;
        request.sampling.top_k = 1;
      }
      engine.submit(std::move(request));
    }
    std::map<uint64_t, std::vector<int32_t>> tokens;
    int rows = 0;  // of a pass, that gave a token
    engine.on_token([&](uint64_t id, const GeneratedToken& generated) {
      tokens[id].push_back(generated.token);
      ++rows;
    });
    int most_rows = 0;
    for (; engine.step(); rows = 0) most_rows = std::max(most_rows, rows);
    EXPECT_GT(most_rows, 64);
    EXPECT_EQ(tokens.size(), static_cast<size_t>(kRequests));
    return tokens;
  };
  const auto greedy = tokens_where([](int) { return false; });
  EXPECT_EQ(greedy, tokens_where([](int) { return true; }));
  EXPECT_EQ(greedy, tokens_where([](int i) { return i % 15 == 0; }));
}

}  // namespace sluice::testing
