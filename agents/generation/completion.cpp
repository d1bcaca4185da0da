#include "agents/generation/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "agents/generation/log_probabilities.h"
#include "agents/http/http_problem.h"

namespace sluice {
namespace {

int tasks_of(const CompletionRequest& request) {
  const size_t prompts = request.kind == CompletionKind::kChat ? 1 : request.texts.size() + request.tokens.size();
  return static_cast<int>(prompts) * request.n;
}

std::vector<ChatPrompt::Encoded> encode_prompts(const Tokenizer& tokenizer, const ChatPrompt& chat,
                                                const CompletionRequest& request, const PromptBounds& bounds) {
  const auto check = [&](const std::string& text) -> const std::string& {
    bounds.check(text.size(), "prompt");
    return text;
  };
  if (request.kind == CompletionKind::kChat) return {chat.encode(request.messages, request.chat, bounds)};
  std::vector<ChatPrompt::Encoded> prompts;
  for (const std::vector<int32_t>& tokens : request.tokens) prompts.push_back({tokens, request.segments});
  for (const std::string& text : request.texts) {
    prompts.push_back(
        {request.add_special_tokens ? tokenizer.encode(check(text)) : tokenizer.encode_as_written(check(text)), {}});
  }
  return prompts;
}

/// What an answer may have of log-probabilities. Throws HttpProblem.
void check_log_probabilities(const CompletionRequest& request, const std::vector<GenerationTask>& tasks) {
  if (request.likely < 0) return;
  int64_t tokens = 0;
  for (const GenerationTask& task : tasks) {
    tokens += task.request.max_tokens + (request.echo ? static_cast<int64_t>(task.request.prompt.size()) : 0);
  }
  const int64_t most = kMostLogProbabilities / (1 + request.likely);
  if (tokens <= most) return;
  throw HttpProblem(400, fmt::format("log-probabilities of {} tokens, with the {} most likely of each; {} tokens are the most",
                                     tokens, request.likely, most))
      .with("param", "logprobs")
      .with("hint", "send fewer prompts at once, or generate less");
}

void add_probabilities(std::vector<ToldToken>& prompt, const TokenProbabilities& known) {
  const auto likely = static_cast<size_t>(known.likely_tokens);
  for (size_t i = 0; i < known.of_tokens.size() && i + 1 < prompt.size(); ++i) {  // its first token follows nothing
    const auto place = std::span(known.likely).subspan(i * likely, likely);
    prompt[i + 1].log_probability = known.of_tokens[i];
    prompt[i + 1].likely.assign(place.begin(), place.end());
  }
}

ToldToken told_token(const GenerationEvent& event) {
  ToldToken told;
  told.token = event.token;
  told.log_probability = event.log_probability;
  told.likely = event.likely;
  return told;
}

HttpProblem failure_of(const GenerationEvent& event) {
  HttpProblem problem(event.status, event.message);
  if (event.status == 503) problem.with_header("Retry-After", "10");
  return problem;
}

uint64_t random_seed() { return (uint64_t{std::random_device()()} << 32) | std::random_device()(); }

}  // namespace

Completion::Completion(EngineThread& engines, const Tokenizer& tokenizer, const ChatPrompt& chat,
                       const CompletionRequest& request, const PromptBounds& bounds, const std::string& caller)
    : engines_(engines),
      tokenizer_(tokenizer),
      stop_tokens_(request.stop_tokens),
      ignore_eos_(request.ignore_eos),
      tells_probabilities_(request.likely >= 0),
      prompt_alone_(request.max_tokens == 0),
      answers_(request.n) {
  engines_.check_room(tasks_of(request), caller);  // before any work
  const std::vector<ChatPrompt::Encoded> prompts = encode_prompts(tokenizer, chat, request, bounds);
  const uint64_t seed = request.seed ? *request.seed : random_seed();
  std::vector<GenerationTask> tasks;
  for (const ChatPrompt::Encoded& prompt : prompts) {
    usage_.prompt_tokens += static_cast<int>(prompt.tokens.size());
    for (int answer = 0; answer < request.n; ++answer) {
      tasks.push_back(task_for(request, prompt.tokens, static_cast<int>(tasks.size())));
      tasks.back().caller = caller;
      tasks.back().request.segments = prompt.segments;
      tasks.back().recompute = request.recompute;
      tasks.back().request.tenant = caller;
      tasks.back().request.answer_extra_key = request.answer_extra_key;
      tasks.back().request.sampling.seed = seed + static_cast<uint64_t>(answer);
    }
  }
  check_log_probabilities(request, tasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    choices_.emplace_back(tokenizer, request.stop);
    const size_t prompt = i / static_cast<size_t>(request.n);
    if (request.echo) echo(choices_.back(), prompts[prompt].tokens, request.texts.empty() ? nullptr : &request.texts[prompt]);
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

void Completion::echo(Choice& choice, const std::vector<int32_t>& prompt, const std::string* text) const {
  if (text == nullptr) {
    choice.echo = choice.text.begin_with(prompt);
  } else {  // which its tokens need not tell to the letter
    choice.echo = *text;
    choice.text.begin_behind(prompt);
  }
  if (!tells_probabilities_) return;
  choice.prompt = place_prompt(tokenizer_, prompt, choice.echo);
  choice.tokens.begin_behind(whole_characters(choice.echo));
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
  task.request.likely = request.likely;
  task.request.prompt_probabilities = tells_probabilities_ && request.echo;
  task.fill = !request.max_tokens && request.kind == CompletionKind::kChat;
  // The last token generated takes no position.
  const int room = most - static_cast<int>(prompt.size()) + 1;
  // Of an answer that may be as long as there is room, no more than log-probabilities may be told of.
  const int told = tells_probabilities_ ? static_cast<int>(kMostLogProbabilities / ((1 + request.likely) * request.n)) : room;
  task.request.max_tokens = task.fill ? std::max(std::min(room, told), 1) : request.max_tokens.value_or(kTokensOfText);
  if (prompt_alone_) task.request.max_tokens = 1;  // no engine does less
  if (task.request.max_tokens > room) {            // said here, before an idle engine makes room for one that could not take it
    const size_t asked = prompt.size() + static_cast<size_t>(prompt_alone_ ? 0 : task.request.max_tokens);
    throw context_problem(most, fmt::format("you requested {} tokens ({} in the prompt, {} to generate)", asked, prompt.size(),
                                            asked - prompt.size()));
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
  return event->kind == GenerationEvent::Kind::kToken ? take_token(choice, *event) : take_end(choice, *event);
}

CompletionPiece Completion::take_token(Choice& choice, const GenerationEvent& event) {
  if (event.prompt_probabilities) add_probabilities(choice.prompt, *event.prompt_probabilities);
  CompletionPiece nothing;
  nothing.choice = event.choice;
  if (prompt_alone_) return nothing;
  ++usage_.completion_tokens;
  const bool stops = is_stop_token(event.token);  // it ends the text and is none of it
  const std::string made = stops ? "" : choice.text.add(event.token);
  if (tells_probabilities_) choice.tokens.add(told_token(event), made);
  if (stops) return nothing;
  const std::string text = choice.stops.add(made);
  if (!choice.stops.found()) return tell(choice, event.choice, text);
  engines_.cancel(choice.id, true);
  return end(choice, event.choice, "stop", text);
}

CompletionPiece Completion::take_end(Choice& choice, const GenerationEvent& event) {
  std::string text = choice.stops.add(choice.text.end());
  text += choice.stops.end();
  const bool stopped = choice.stops.found() || event.reason == FinishReason::kStop;
  return end(choice, event.choice, stopped && !prompt_alone_ ? "stop" : "length", text);
}

CompletionPiece Completion::tell(Choice& choice, int index, const std::string& text) {
  CompletionPiece piece;
  piece.choice = index;
  piece.text = std::exchange(choice.echo, {}) + text;
  piece.tokens = std::exchange(choice.prompt, {});
  for (ToldToken& token : choice.tokens.take(text.size())) piece.tokens.push_back(std::move(token));
  return piece;
}

CompletionPiece Completion::end(Choice& choice, int index, const std::string& reason, const std::string& text) {
  choice.ended = true;
  --open_;
  CompletionPiece piece = tell(choice, index, text);
  for (ToldToken& token : choice.tokens.take_rest()) piece.tokens.push_back(std::move(token));
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
