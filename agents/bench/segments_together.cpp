#include "agents/bench/segments_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAnswer = 16;  // tokens of each answer
constexpr int kChunk = 512;
// Of those who decode while a text is frozen.
constexpr int kPrompt = 64;
constexpr int kSteps = 400;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

EngineOptions options_for(const SegmentLayout& layout, const BenchOptions& options) {
  EngineOptions made;
  made.page = kSegmentPage;
  made.max_batch = options.together + 1;  // and a text that is frozen
  made.max_pass_tokens = kChunk;
  // Half of the requests have room at a time, beside the documents.
  const int64_t tokens = int64_t{layout.tokens + kAnswer + kSegmentPage} * ((options.together + 1) / 2) +
                         int64_t{layout.segment + 128} * std::max(options.documents, layout.segments) +
                         int64_t{8} * (kPrompt + kSteps + kSegmentPage) + layout.tokens;
  made.pages = static_cast<int>(tokens / kSegmentPage) + 8;
  return made;
}

/// What came of all requests.
struct TogetherOutcome {
  double seconds = 0;
  double first_token = 0;  // seconds, the mean
  int pages = 0;           // the most that were in use
  int64_t copied = 0;      // tokens
  size_t answers = 0;
  int preemptions = 0;
};

TogetherOutcome answer(Engine& engine, std::vector<Request> requests) {
  TogetherOutcome outcome;
  std::map<uint64_t, double> first;
  const auto begun = Clock::now();
  engine.on_token([&](uint64_t id, const GeneratedToken&) { first.emplace(id, seconds_since(begun)); });
  for (Request& request : requests) {
    request.max_tokens = kAnswer;
    engine.submit(std::move(request));
  }
  while (engine.step()) outcome.pages = std::max(outcome.pages, engine.stats().pages_total - engine.stats().pages_free);
  outcome.seconds = seconds_since(begun);
  engine.on_token({});
  for (const RequestResult& result : engine.take_finished()) {
    outcome.copied += result.copied_tokens;
    outcome.preemptions += result.preemptions;
    outcome.answers += result.tokens.size() == kAnswer ? 1 : 0;
  }
  for (const auto& [id, seconds] : first) outcome.first_token += seconds / static_cast<double>(first.size());
  return outcome;
}

/// The longest time between two steps of those who decode. `frozen`: a text that is frozen meanwhile.
double longest_wait(Engine& engine, SegmentTexts& texts, int decoding, const std::optional<Request>& frozen) {
  for (int i = 0; i < decoding; ++i) {
    Request request;
    request.prompt = texts.drawn(kPrompt);
    request.max_tokens = kSteps;
    request.ignore_eos = true;
    engine.submit(std::move(request));
  }
  double longest = 0;
  std::optional<Clock::time_point> last;
  int tokens = 0;
  engine.on_token([&](uint64_t, const GeneratedToken&) {
    if (tokens++ % decoding != 0) return;
    if (last && tokens > 2 * decoding) longest = std::max(longest, seconds_since(*last));
    last = Clock::now();
  });
  for (int step = 0; engine.step(); ++step) {
    constexpr int kBefore = 20;
    if (step == kBefore && frozen) engine.submit(*frozen);
  }
  engine.on_token({});
  engine.take_finished();
  return longest;
}

}  // namespace

void add_requests_together(Device& device, const Model& model, const SegmentLayout& layout, const BenchOptions& options,
                           const std::string& name, const std::shared_ptr<const RecomputeRule>& rule,
                           std::vector<BenchRow>& rows) {
  SegmentTexts texts(model.config(), layout, std::max(options.documents, layout.segments));
  Engine reusing(device, model, nullptr, options_for(layout, options));
  for (Request& request : texts.known()) {
    reusing.submit(std::move(request));
    reusing.run_all();
  }
  std::vector<Request> asked;
  std::vector<Request> plain;
  for (int i = 0; i < options.together; ++i) {
    asked.push_back(texts.prompt());
    plain.push_back(asked.back());
    plain.back().segments.clear();
    asked.back().recompute = rule;
  }
  const TogetherOutcome by_rule = answer(reusing, std::move(asked));
  TogetherOutcome by_none;
  {
    Engine whole(device, model, nullptr, options_for(layout, options));
    by_none = answer(whole, std::move(plain));
  }
  BenchRow& row = rows.emplace_back();
  row.name = name;
  row.shape = fmt::format("{} requests of {} tokens, {} of {} documents of {}", options.together, layout.tokens, layout.segments,
                          std::max(options.documents, layout.segments), layout.segment);
  row.time_us = by_rule.seconds * 1e6;
  const auto all = static_cast<size_t>(options.together);
  row.correct = by_rule.answers == all && by_none.answers == all && by_rule.copied > 0;
  const double ratio = by_none.seconds / by_rule.seconds;
  row.note = fmt::format(
      "{:.2f}x computing all ({:.1f} s); first tokens after {:.1f} and {:.1f} s; {} and {} pages at most; {} and {} preemptions",
      ratio, by_none.seconds, by_rule.first_token, by_none.first_token, by_rule.pages, by_none.pages, by_rule.preemptions,
      by_none.preemptions);
  row.metrics = {{"ratio", ratio},
                 {"first_token_ratio", by_none.first_token / by_rule.first_token},
                 {"pages", by_rule.pages},
                 {"pages_whole", by_none.pages}};
  if (rows.size() > 1) return;  // once for all rules
  Request frozen;
  frozen.prompt = texts.drawn(layout.tokens / 2);
  frozen.segments = {{0, static_cast<int>(frozen.prompt.size()), "frozen"}};
  frozen.max_tokens = 1;
  frozen.freeze = true;
  const int decoding = std::min(8, options.together);
  const double alone = longest_wait(reusing, texts, decoding, std::nullopt);
  const size_t tokens = frozen.prompt.size();
  const double beside = longest_wait(reusing, texts, decoding, std::move(frozen));
  BenchRow& waiting = rows.emplace_back();
  waiting.name = "beside a frozen text";
  waiting.shape = fmt::format("{} requests that decode, a text of {} tokens", decoding, tokens);
  waiting.time_us = beside * 1e6;
  waiting.correct = beside > 0 && alone > 0;
  waiting.note = fmt::format("the longest time between two tokens of those who decode; {:.1f} ms without the text", alone * 1e3);
  waiting.metrics = {{"alone_us", alone * 1e6}};
}

}  // namespace sluice
