#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "host/serving/engine.h"
#include "scripting/lua/trace.h"
#include "tests/host/serving/drawn_request.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice::testing {

/// Engines of flows with patterns on the CPU, against a model in float64 that sees what they say.
class EnginePatterns : public ::testing::Test {
 protected:
  EnginePatterns() {
    tiny_.layers = 4;
    tiny_.draw();
    tiny_.write(directory_.path());
    device_ = create_cpu_device({2});
    model_ = load_model(directory_.path(), *device_);
  }

  /// A flow of `pattern`, a Lua expression in which `p` is sluice.pattern. The judge sees what it says.
  Plan plan(const std::string& pattern, const std::string& options = "") {
    const ModelConfig& config = model_->config();
    const std::string script = "local p = sluice.pattern\nlocal flow = sluice.flow{name = \"pattern\", kv = \"f32\"" + options +
                               "}\nflow.pattern = " + pattern + "\nreturn flow\n";
    Plan plan =
        compile(trace(script, "pattern.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers}))
            .plan;
    const FlowGraph graph = plan.graph;
    const int layers = config.layers;
    tiny_.sees = [graph, layers](int layer, int kv_head, int position, int seen) {
      const int place = graph.layers.is_sparse(layer, layers) ? graph.patterns.place_of(layer, layers) : LayerPatterns::kNone;
      return place == LayerPatterns::kNone ||
             graph.patterns.patterns[static_cast<size_t>(place)].of_head(kv_head).sees(position, seen);
    };
    return plan;
  }

  struct Bounded {
    std::string pattern;  // Lua, as above
    std::string prefill = "pattern";
    std::string beside = "";  // what is united with the selection
    bool some_full = false;   // layer 1 is dense, and layer 2 has no pattern
  };
  /// A flow with pages of 8 whose index stage takes the first and the last of those that it is shown, for prompts of `prompt`
  /// tokens. The judge sees what it says.
  Plan bounded(const Bounded& told, int prompt) {
    constexpr int kPage = 8;
    const ModelConfig& config = model_->config();
    const std::string script = fmt::format(
        "local p = sluice.pattern\nlocal flow = sluice.flow{{name = \"both\", kv = \"f32\", page = 8, prefill = \"{}\"{}}}\n"
        "flow.pattern = {}\nfunction flow.index(q, c) return sluice.union(sluice.window{{first = 1, last = 1}}, "
        "sluice.window{{last = 1}}{}) end\nreturn flow\n",
        told.prefill, told.some_full ? ", layers = {[1] = \"full\", rest = \"sparse\"}" : "",
        told.some_full ? fmt::format("{{[2] = \"full\", rest = {}}}", told.pattern) : told.pattern, told.beside);
    Plan both =
        compile(trace(script, "both.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers})).plan;
    const FlowGraph graph = both.graph;
    tiny_.sees = [graph, told, prompt, layers = config.layers](int layer, int kv_head, int position, int seen) {
      if (!graph.is_run_by(layer, layers)) return true;
      const int place = graph.patterns.place_of(layer, layers);
      const auto visible = [&](int head, int token) {
        return place == LayerPatterns::kNone ||
               graph.patterns.patterns[static_cast<size_t>(place)].of_head(head).sees(position, token);
      };
      if (position < prompt - 1) return told.prefill == "dense" || visible(kv_head, seen);
      if (!visible(kv_head, seen)) return false;
      int first = 0;  // of the pages that are shown
      while (!visible(0, first) && !visible(1, first) && first / kPage < position / kPage) ++first;
      if (seen / kPage == first / kPage || seen / kPage == position / kPage) return true;
      return graph.beside() != nullptr && graph.beside()->sees(position, seen);
    };
    return both;
  }

  static EngineOptions options(int pages) {
    EngineOptions options;
    options.kv = DataType::kF32;
    options.pages = pages;
    options.max_batch = 4;
    options.max_pass_tokens = 96;
    options.run_ahead = true;
    return options;
  }

  Request request(int prompt, int max_tokens, int salt) const {
    return testing::drawn_request(tiny_.vocabulary, prompt, max_tokens, salt);
  }

  /// The largest error of all logits of a result, beside the judge's.
  double error_of(const Request& request, const RequestResult& result) const {
    std::vector<int> tokens(request.prompt.begin(), request.prompt.end());
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    const std::vector<double> wanted = tiny_.logits(tokens);
    if (wanted.size() != result.logits.size()) return INFINITY;
    double error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) error = std::max(error, std::abs(result.logits[i] - wanted[i]));
    return error;
  }

  void expect_logits(const Plan& plan, const EngineOptions& options, const std::vector<int>& prompts, int max_tokens) {
    Engine engine(*device_, *model_, &plan, options);
    std::vector<Request> requests;
    for (const int prompt : prompts) {
      requests.push_back(request(prompt, max_tokens, prompt));
      requests.back().want_logits = true;
      engine.submit(requests.back());
    }
    for (const RequestResult& result : engine.run_all()) {
      EXPECT_LT(error_of(requests[result.id - 1], result), 2e-3) << "a prompt of " << requests[result.id - 1].prompt.size();
    }
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
  }

  TinyModel tiny_;
  TemporaryDirectory directory_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

}  // namespace sluice::testing
