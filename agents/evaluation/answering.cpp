#include "agents/evaluation/answering.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kStopWindow = 16;  // tokens that are searched for a stop text, which is shorter

/// Follows generations token by token, so that those whose outcome is known can end.
class Follower {
 public:
  explicit Follower(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(uint64_t id, const PrefilledPrompt& prompt) { watched_[id] = {&prompt, {}}; }

  /// True if nothing that could follow changes the score: of an answer in order, once there is a mistake.
  bool is_decided(uint64_t id, int32_t token) {
    Watched& watched = watched_.at(id);
    watched.tokens.push_back(token);
    const PrefilledPrompt& prompt = *watched.prompt;
    const size_t at = watched.tokens.size() - 1;
    if (!prompt.expected.empty() && at < prompt.expected.size() && prompt.expected[at] != token) return true;
    if (prompt.stop.empty()) return false;
    const auto& tokens = watched.tokens;
    const size_t first = tokens.size() - std::min(tokens.size(), kStopWindow);
    return tokenizer_.decode(std::span(tokens).subspan(first)).find(prompt.stop) != std::string::npos;
  }

  std::string text(uint64_t id) const { return tokenizer_.decode(watched_.at(id).tokens); }
  const std::vector<int32_t>& tokens(uint64_t id) const { return watched_.at(id).tokens; }

 private:
  struct Watched {
    const PrefilledPrompt* prompt = nullptr;
    std::vector<int32_t> tokens;
  };
  const Tokenizer& tokenizer_;
  std::unordered_map<uint64_t, Watched> watched_;
};

}  // namespace

Request request_for(const PrefilledPrompt& prompt) {
  Request request;
  request.prompt = prompt.tokens;
  request.max_tokens = prompt.max_tokens;
  request.sampling = prompt.sampling;
  request.snapshot = prompt.snapshot;
  request.given = prompt.given;
  if (!prompt.given.empty()) request.likely = 0;
  return request;
}

std::vector<Generation> answer_all(Engine& engine, const std::vector<PrefilledPrompt>& prompts, std::vector<Request> requests,
                                   const Tokenizer& tokenizer) {
  Follower follower(tokenizer);
  std::unordered_map<uint64_t, size_t> places;
  for (size_t i = 0; i < requests.size(); ++i) {
    const uint64_t id = engine.submit(std::move(requests[i]));
    places[id] = i;
    follower.add(id, prompts[i]);
  }
  engine.on_token([&](uint64_t id, const GeneratedToken& generated) {
    if (follower.is_decided(id, generated.token)) engine.cancel(id);
  });
  std::vector<Generation> generations(places.size());
  for (const RequestResult& result : engine.run_all()) {
    generations[places.at(result.id)] = {follower.text(result.id), result.reason == FinishReason::kStop,
                                         follower.tokens(result.id), result.probabilities.of_tokens};
  }
  engine.on_token({});
  return generations;
}

}  // namespace sluice
