#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agents/generation/completion.h"
#include "agents/http/http_message.h"
#include "agents/http/http_problem.h"

namespace sluice {

/// What all objects of one answer have in common.
struct CompletionAnswer {
  CompletionKind kind = CompletionKind::kText;
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool include_usage = false;
  const Tokenizer* tokenizer = nullptr;  // which names tokens, if log-probabilities are wanted; else null
  bool echo = false;                     // choices begin with their prompts
};

/// OpenAI's error object, instead of a problem document.
HttpResponse open_ai_refusal(const HttpProblem& problem);
/// A problem document with that object, for whoever asks for what is not there: it may be a client of either kind.
HttpResponse problem_with_error(const HttpProblem& problem);

/// The whole answer as JSON: one piece a choice, with all of its text.
std::string whole_answer(const CompletionAnswer& answer, const std::vector<CompletionPiece>& choices,
                         const CompletionUsage& usage);

/// The chunks of a stream, each as an event of text/event-stream.
std::string first_chunk(const CompletionAnswer& answer, int choice);  // of a chat: the role
std::string piece_chunk(const CompletionAnswer& answer, const CompletionPiece& piece);
std::string last_chunks(const CompletionAnswer& answer, const CompletionUsage& usage);  // usage, if wanted, and [DONE]
std::string error_chunk(const HttpProblem& problem);

}  // namespace sluice
