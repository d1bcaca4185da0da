#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "agents/generation/told_tokens.h"
#include "host/text/tokenizer.h"

namespace sluice {

/// Log-probabilities that one request may ask for, those of the most likely tokens included: what an answer has of them is in
/// memory until it is sent.
constexpr int64_t kMostLogProbabilities = int64_t{1} << 19;

/// What a token is called in an answer: its text or, where its bytes are no whole characters, "bytes:\xe2\x82".
std::string token_name(const Tokenizer& tokenizer, int32_t token);

/// The member `logprobs` of a chat's choice, as JSON: {content: [{token, logprob, bytes, top_logprobs}], refusal}.
std::string chat_log_probabilities(const Tokenizer& tokenizer, std::span<const ToldToken> tokens);

/// That of a text's choice: {tokens, token_logprobs, top_logprobs, text_offset}. An object of `top_logprobs` has the most likely
/// tokens and the token itself. Of two with one name there the less likely is called "token_id:17". With `has_prompt`
/// `prompt_attention` says how tokens of the prompt were computed.
std::string text_log_probabilities(const Tokenizer& tokenizer, std::span<const ToldToken> tokens, bool has_prompt);

}  // namespace sluice
