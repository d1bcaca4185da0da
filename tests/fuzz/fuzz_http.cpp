// The first byte says what the rest is: the head of a request, a query string, or the body of a completion.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agents/generation/completion_request.h"
#include "agents/http/http_head.h"
#include "agents/http/http_problem.h"

namespace {

void parse(uint8_t kind, std::string_view text) {
  if (kind % 4 == 0) {
    const sluice::HttpHead head = sluice::parse_http_head(text);
    if (head.path.empty() || head.path.front() != '/' || head.headers.contains("Transfer-Encoding")) __builtin_trap();
    sluice::decode_percent(head.path);
  } else if (kind % 4 == 1) {
    sluice::parse_query(text);
  } else {
    const auto form = kind % 4 == 2 ? sluice::CompletionKind::kText : sluice::CompletionKind::kChat;
    const sluice::CompletionRequest request = sluice::parse_completion_request(text, form);
    if (request.n < 1 || request.n > 64 || (request.max_tokens && *request.max_tokens < 1)) __builtin_trap();
    if (request.texts.empty() && request.tokens.empty() && request.messages.empty()) __builtin_trap();
    for (const std::string& stop : request.stop) {
      if (stop.empty()) __builtin_trap();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    parse(data[0], {reinterpret_cast<const char*>(data + 1), size - 1});
  } catch (const sluice::HttpProblem& problem) {
    if (problem.status() < 400 || problem.status() > 599) __builtin_trap();
  }
  return 0;
}
