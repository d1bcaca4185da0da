#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/serving/engine.h"
#include "host/text/tokenizer.h"
#include "scripting/base/mapped_file.h"
#include "tests/support/real_model.h"

namespace sluice::testing {

inline std::string real_model_path() { return real_model_file("SmolLM2-135M-Instruct.Q4_1.gguf").string(); }

inline nlohmann::json real_model_expectations() {
  return nlohmann::json::parse(read_text_file(real_model_file("smollm2.json").string()));
}

/// The real model on a device beside what transformers says of it.
class RealModelJudge {
 public:
  RealModelJudge(std::unique_ptr<Device> device, DataType kv) : device_(std::move(device)) {
    const auto begin = std::chrono::steady_clock::now();
    model_ = load_model(real_model_path(), *device_);
    tokenizer_ = load_tokenizer(real_model_path());
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EngineOptions options;
    options.kv = kv;
    options.pages = 300;
    options.max_batch = 4;
    options.prefix_cache = false;
    engine_ = std::make_unique<Engine>(*device_, *model_, nullptr, options);
  }

  double load_seconds() const { return load_seconds_; }

  /// Largest difference of a logit, or of the logarithm of their sum. The most likely token must be the same.
  double logits_error() {
    Request request;
    request.prompt = expected_["logits"]["ids"].get<std::vector<int32_t>>();
    request.want_logits = true;
    const RequestResult result = run(std::move(request), 1);
    const auto width = static_cast<size_t>(model_->config().vocabulary);
    double largest = 0;
    for (const auto& [number, row] : expected_["logits"]["rows"].items()) {
      const auto logits = std::span(result.logits).subspan(std::stoul(number) * width, width);
      EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), row["top"][0].get<int>()) << number;
      for (size_t i = 0; i < row["top"].size(); ++i) {
        largest = std::max(largest, std::abs(logits[row["top"][i].get<size_t>()] - row["values"][i].get<double>()));
      }
      largest = std::max(largest, std::abs(log_sum_exp(logits) - row["logsumexp"].get<double>()));
    }
    return largest;
  }

  /// Greedy continuations must be the same as far as every token leads by more than `lead`.
  void expect_continuations(double lead) {
    for (const nlohmann::json& entry : expected_["greedy"]) {
      auto ids = entry["ids"].get<std::vector<int32_t>>();
      size_t sure = 0;
      while (sure < ids.size() && entry["lead"][sure].get<double>() > lead) ++sure;
      ids.resize(sure);
      if (ids.empty()) continue;
      Request request;
      request.prompt = tokenizer_->encode(entry["prompt"].get<std::string>());
      EXPECT_EQ(run(std::move(request), static_cast<int>(ids.size())).tokens, ids) << entry["prompt"];
    }
  }

  struct Loss {
    double got = 0;
    double wanted = 0;
    int right = 0;  // tokens that were the most likely
    int wanted_right = 0;
  };
  /// Of the ends of windows of text. Where `fed`, as tasks over texts have them, by decode steps; else by one prefill.
  std::vector<Loss> losses(bool fed) {
    std::vector<Loss> losses;
    for (const nlohmann::json& window : expected_["windows"]) {
      const auto ids = window["ids"].get<std::vector<int32_t>>();
      const auto last = window["last"].get<size_t>();
      Request request;
      request.prompt = ids;
      request.likely = 1;
      request.prompt_probabilities = !fed;
      if (fed) {
        request.prompt.resize(ids.size() - last);
        request.given.assign(ids.end() - static_cast<ptrdiff_t>(last), ids.end());
      }
      const RequestResult result = run(std::move(request), fed ? static_cast<int>(last) : 1);
      const TokenProbabilities& told = fed ? result.probabilities : result.prompt_probabilities;
      Loss& loss = losses.emplace_back(Loss{0, window["nll"].get<double>(), 0, window["right"].get<int>()});
      const size_t first = told.of_tokens.size() - last;
      for (size_t i = 0; i < last; ++i) {
        loss.got -= told.of_tokens[first + i];
        loss.right += told.likely[first + i].token == ids[ids.size() - last + i] ? 1 : 0;
      }
    }
    return losses;
  }

 private:
  RequestResult run(Request request, int max_tokens) {
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    engine_->submit(std::move(request));
    return engine_->run_all().at(0);
  }

  static double log_sum_exp(std::span<const float> logits) {
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    return most + std::log(sum);
  }

  nlohmann::json expected_ = real_model_expectations();
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  double load_seconds_ = 0;
};

}  // namespace sluice::testing
