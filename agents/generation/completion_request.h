#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/evaluation/recompute_rules.h"
#include "agents/generation/chat_prompt.h"
#include "host/serving/engine.h"
#include "scripting/base/json_object.h"

namespace sluice {

constexpr int kMostChoices = 64;  // of one request

enum class CompletionKind : uint8_t { kText, kChat };

/// The body of a request to /v1/completions or /v1/chat/completions, checked, but not yet against model and tokenizer.
struct CompletionRequest {
  CompletionKind kind = CompletionKind::kText;
  std::string model;                            // empty: none was named
  std::string flow;                             // empty: dense attention
  std::vector<std::string> texts;               // prompts as text...
  std::vector<std::vector<int32_t>> tokens;     // ...or as ids
  std::vector<Segment> segments;                // of the one prompt that is ids
  RecomputeChoice recompute;                    // of segments
  std::optional<std::string> answer_extra_key;  // the name under which answers are segments
  std::vector<ChatMessage> messages;            // of a chat
  ChatOptions chat;                             // how they become a prompt
  std::optional<int> max_tokens;
  SamplingOptions sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  int n = 1;
  int likely = -1;  // log-probabilities of tokens and of so many of the most likely; -1: none
  bool ignore_eos = false;
  bool echo = false;               // max_tokens may be 0 then: the prompt alone
  bool add_special_tokens = true;  // to texts of prompts: those that the tokenizer puts around a text
  bool stream = false;
  bool include_usage = false;
};

/// Parses a body. Fields that would change the answer in a way that is not built here (penalties, tools, ...) are
/// refused unless they have the value that changes nothing; fields that nobody knows are ignored, as vLLM does. Throws
/// HttpProblem (400) with the member "param" naming the field.
CompletionRequest parse_completion_request(std::string_view text, CompletionKind kind);

/// The ids of a list. Throws HttpProblem (400) naming `field`.
std::vector<int32_t> read_token_ids(const nlohmann::json& list, const char* field);
/// The name that text goes by; none is a name, too. Throws InputError.
std::string read_extra_key(const JsonObject& owner, const char* name = "extra_key");

}  // namespace sluice
