#include "agents/generation/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "agents/http/http_problem.h"

namespace sluice {
namespace {

int tasks_of(const CompletionRequest& request) {
  const size_t prompts = request.kind == CompletionKind::kChat ? 1 : request.texts.size() + request.tokens.size();
  return static_cast<int>(prompts) * request.n;
}

std::vector<std::vector<int32_t>> encode_prompts(const Tokenizer& tokenizer, const ChatPrompt& chat,
                                                 const CompletionRequest& request, size_t most_bytes) {
  const auto check = [&](const std::string& text) -> const std::string& {
    if (text.size() <= most_bytes) return text;
    throw HttpProblem(400, fmt::format("a prompt of {} bytes; {} are the most that fit this model", text.size(), most_bytes))
        .with("param", request.kind == CompletionKind::kChat ? "messages" : "prompt")
        .with("code", "context_length_exceeded");
  };
  if (request.kind == CompletionKind::kChat) return {chat.encode(check(chat.text(request.messages, request.chat)))};
  std::vector<std::vector<int32_t>> prompts = request.tokens;
  for (const std::string& text : request.texts) prompts.push_back(tokenizer.encode(check(text)));
  return prompts;
}

HttpProblem failure_of(const GenerationEvent& event) {
  HttpProblem problem(event.status, event.message);
  if (event.status == 503) problem.with_header("Retry-After", "10");
  return problem;
}

uint64_t random_seed() { return (uint64_t{std::random_device()()} << 32) | std::random_device()(); }

}  // namespace

Completion::Completion(EngineThread& engines, const Tokenizer& tokenizer, const ChatPrompt& chat,
                       const CompletionRequest& request, size_t most_prompt_bytes, const std::string& caller)
    : engines_(engines), stop_tokens_(request.stop_tokens), ignore_eos_(request.ignore_eos), answers_(request.n) {
  engines_.check_room(tasks_of(request), caller);  // before any work
  const std::vector<std::vector<int32_t>> prompts = encode_prompts(tokenizer, chat, request, most_prompt_bytes);
  const uint64_t seed = request.seed ? *request.seed : random_seed();
  std::vector<GenerationTask> tasks;
  for (size_t i = 0; i < prompts.size(); ++i) {
    usage_.prompt_tokens += static_cast<int>(prompts[i].size());
    for (int answer = 0; answer < request.n; ++answer) {
      const int choice = static_cast<int>(tasks.size());
      tasks.push_back(task_for(request, prompts[i], choice));
      tasks.back().caller = caller;
      tasks.back().request.sampling.seed = seed + static_cast<uint64_t>(answer);
      choices_.emplace_back(tokenizer, request.stop);
      if (!request.echo) continue;
      Choice& last = choices_.back();
      if (request.texts.empty()) {
        last.echo = last.text.begin_with(prompts[i]);
      } else {  // which its tokens need not tell to the letter
        last.echo = request.texts[i];
        last.text.begin_behind(prompts[i]);
      }
    }
  }
  const std::vector<uint64_t> ids = engines_.submit(std::move(tasks));
  for (size_t i = 0; i < ids.size(); ++i) choices_[i].id = ids[i];
  open_ = static_cast<int>(ids.size());
}

Completion::~Completion() {
  for (const Choice& choice : choices_) {
    if (!choice.ended) engines_.cancel(choice.id, false);
  }
}

GenerationTask Completion::task_for(const CompletionRequest& request, const std::vector<int32_t>& prompt, int choice) const {
  constexpr int kTokensOfText = 16;  // as OpenAI and vLLM have it; a chat goes on to the model's end
  const int most = engines_.config().max_positions;
  GenerationTask task;
  task.flow = request.flow;
  task.choice = choice;
  task.events = events_;
  task.request.prompt = prompt;
  task.request.sampling = request.sampling;
  task.request.stop_tokens = request.stop_tokens;
  task.request.ignore_eos = request.ignore_eos;
  task.fill = !request.max_tokens && request.kind == CompletionKind::kChat;
  // The last token generated takes no position.
  const int room = most - static_cast<int>(prompt.size()) + 1;
  task.request.max_tokens = task.fill ? std::max(room, 1) : request.max_tokens.value_or(kTokensOfText);
  if (task.request.max_tokens > room) {  // said here, before an idle engine makes room for one that could not take it
    throw HttpProblem(400, fmt::format("a prompt of {} tokens and {} to generate exceed the model's {} positions", prompt.size(),
                                       task.request.max_tokens, most))
        .with("code", "context_length_exceeded");
  }
  return task;
}

void Completion::wait_until_accepted(const std::function<bool()>& is_wanted) {
  constexpr std::chrono::milliseconds kTurn(50);
  while (accepted_ < choices()) {
    if (!is_wanted()) throw HttpProblem(503, "the request was given up before it ran");
    const std::optional<GenerationEvent> event = events_->pop(kTurn);
    if (!event) continue;
    if (event->kind == GenerationEvent::Kind::kFailed) {
      choices_[static_cast<size_t>(event->choice)].ended = true;
      throw failure_of(*event);
    }
    if (event->kind == GenerationEvent::Kind::kAccepted) {
      ++accepted_;
    } else {
      early_.push_back(*event);
    }
  }
}

std::optional<CompletionPiece> Completion::next(std::chrono::milliseconds wait) {
  std::optional<GenerationEvent> event;
  if (early_.empty()) {
    event = events_->pop(wait);
  } else {
    event = std::move(early_.front());
    early_.pop_front();
  }
  if (!event) return std::nullopt;
  Choice& choice = choices_[static_cast<size_t>(event->choice)];
  if (event->kind == GenerationEvent::Kind::kFailed) {
    choice.ended = true;
    throw failure_of(*event);
  }
  if (event->kind == GenerationEvent::Kind::kToken && event->choice % answers_ == 0) usage_.cached_tokens += event->cached_tokens;
  if (choice.ended) return std::nullopt;  // the engine had not heard of the stop string yet
  if (event->kind == GenerationEvent::Kind::kToken) return take_token(choice, event->choice, event->token);
  const std::string rest = choice.stops.add(choice.text.end());
  const bool stopped = choice.stops.found() || event->reason == FinishReason::kStop;
  return end(choice, event->choice, stopped ? "stop" : "length", rest + choice.stops.end());
}

CompletionPiece Completion::take_token(Choice& choice, int index, int32_t token) {
  ++usage_.completion_tokens;
  CompletionPiece piece;
  piece.choice = index;
  if (is_stop_token(token)) return piece;  // it ends the text and is none of it
  const std::string text = choice.stops.add(choice.text.add(token));
  if (choice.stops.found()) {
    engines_.cancel(choice.id, true);
    return end(choice, index, "stop", text);
  }
  piece.text = std::exchange(choice.echo, {}) + text;
  return piece;
}

CompletionPiece Completion::end(Choice& choice, int index, const std::string& reason, std::string text) {
  choice.ended = true;
  --open_;
  CompletionPiece piece;
  piece.choice = index;
  piece.text = std::exchange(choice.echo, {}) + std::move(text);
  piece.finish_reason = reason;
  return piece;
}

bool Completion::is_stop_token(int32_t token) const {
  const auto is_in = [token](const std::vector<int32_t>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  return is_in(stop_tokens_) || (!ignore_eos_ && is_in(engines_.config().end_tokens));
}

}  // namespace sluice
