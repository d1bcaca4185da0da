// Time to the first token of a prompt most of whose text stood elsewhere before, by rule, beside computing all of it: in turns,
// on the same texts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>

#include "agents/bench/bench.h"
#include "host/serving/engine.h"
#include "host/weights/model_path.h"
#include "host/weights/random_weights.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPage = 16;
constexpr int kChunk = 512;

/// Where the text of a prompt comes from.
struct Layout {
  int segments = 0;
  int segment = 0;  // tokens of each
  int tokens = 0;   // of the prompt

  /// Of the prompt's own text, before the segment of this number, or behind all.
  int own(int place) const {
    const int all = tokens - segments * segment;
    return all / (segments + 1) + (place < all % (segments + 1) ? 1 : 0);
  }
};

Layout layout_of(const BenchOptions& options) {
  const int asked = static_cast<int>(std::lround(options.reused * options.tokens / options.segment));
  const int segments = std::min(asked, (options.tokens - 1) / (options.segment + 1));  // with a token between any two
  const Layout layout{segments, options.segment, options.tokens};
  if (segments < 1) {
    throw InputError(
        fmt::format("{} tokens of which {} are segments of {}: there are none", options.tokens, options.reused, options.segment),
        "lower --segment, or raise --reused");
  }
  return layout;
}

class Texts {
 public:
  Texts(const ModelConfig& config, const Layout& layout) : config_(config), layout_(layout) {
    for (int i = 0; i < layout.segments; ++i) segments_.push_back(drawn(layout.segment));
  }

  /// That have each segment in another place, so that they are known.
  std::vector<Request> known() {
    std::vector<Request> requests;
    for (const std::vector<int32_t>& segment : segments_) {
      constexpr int kBefore = 37;
      Request& request = requests.emplace_back(asked(drawn(kBefore)));
      add(request, segment);
      append(request, drawn(2 * kPage));  // the page with its last tokens is full
    }
    return requests;
  }

  /// The prompt, with new text of its own.
  Request prompt() {
    Request request = asked({});
    for (int i = 0; i < layout_.segments; ++i) {
      append(request, drawn(layout_.own(i)));
      add(request, segments_[segments_.size() - 1 - static_cast<size_t>(i)]);
    }
    append(request, drawn(layout_.own(layout_.segments)));
    return request;
  }

 private:
  static Request asked(std::vector<int32_t> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.likely = 0;
    return request;
  }
  static void append(Request& request, const std::vector<int32_t>& text) {
    request.prompt.insert(request.prompt.end(), text.begin(), text.end());
  }
  static void add(Request& request, const std::vector<int32_t>& segment) {
    const auto first = static_cast<int>(request.prompt.size());
    append(request, segment);
    request.segments.push_back({first, static_cast<int>(request.prompt.size()), "bench"});
  }
  std::vector<int32_t> drawn(int tokens) {
    std::vector<int32_t> text;
    for (int i = 0; i < tokens; ++i) text.push_back(static_cast<int32_t>(random_() % static_cast<unsigned>(config_.vocabulary)));
    return text;
  }

  const ModelConfig& config_;
  const Layout layout_;
  std::mt19937 random_{7};
  std::vector<std::vector<int32_t>> segments_;
};

EngineOptions options_of(const Layout& layout, bool prefix_cache) {
  EngineOptions options;
  options.page = kPage;
  options.max_batch = 1;
  options.max_pass_tokens = kChunk;
  options.prefix_cache = prefix_cache;
  const int tokens = prefix_cache ? 3 * layout.tokens + 128 * layout.segments : layout.tokens + kPage;
  options.pages = pages_for(tokens, kPage) + 4;
  return options;
}

struct Timed {
  double seconds = 0;  // to the first token
  RequestResult result;
};

Timed time_first_token(Engine& engine, Request request) {
  const auto begun = Clock::now();
  double seconds = 0;
  engine.on_token(
      [&](uint64_t, const GeneratedToken&) { seconds = std::chrono::duration<double>(Clock::now() - begun).count(); });
  engine.submit(std::move(request));
  RequestResult result = engine.run_all().front();
  engine.on_token({});
  return {seconds, std::move(result)};
}

/// What a rule's prompt is computed with, of what a whole one is: multiplications of rows with weights and with keys and values.
double share_of_work(const ModelConfig& config, const Layout& layout, const Recomputation& rule, int computed) {
  const double hidden = config.hidden;
  const double heads = double(config.query_heads) * config.head_dim;
  const double qkv = hidden * (heads + 2.0 * config.kv_heads * config.head_dim);
  const double row = qkv + heads * hidden + 3 * hidden * config.intermediate;
  const double attention = 2 * heads * layout.tokens / 2;  // of a row in the middle
  const double all = double(layout.tokens) * config.layers * (row + attention);
  const bool looks = rule.rule == Recomputation::Rule::kSparseQ || rule.rule == Recomputation::Rule::kKeys;
  const int below = looks ? std::min(rule.boundary, config.layers - 1) : 0;
  double work =
      double(layout.tokens) * below * (row + attention) + double(computed) * (config.layers - below) * (row + attention);
  if (looks) work += layout.tokens * qkv;
  if (rule.rule == Recomputation::Rule::kSparseQ) work += (layout.tokens - layout.segments * layout.segment) * 2 * attention;
  return work / all;
}

struct NamedRule {
  const char* name;
  Recomputation rule;
};

BenchRow measure(Engine& whole, Engine& reusing, Texts& texts, const Layout& layout, const ModelConfig& config,
                 const NamedRule& named, double seconds) {
  std::vector<double> times, ratios;
  Timed last, dense;
  const auto begun = Clock::now();
  constexpr size_t kLeast = 3;
  while (times.size() < kLeast || std::chrono::duration<double>(Clock::now() - begun).count() < seconds) {
    Request request = texts.prompt();
    request.recomputation = named.rule;
    Request plain = request;
    plain.segments.clear();
    dense = time_first_token(whole, std::move(plain));
    last = time_first_token(reusing, std::move(request));
    times.push_back(last.seconds);
    ratios.push_back(dense.seconds / last.seconds);
  }
  BenchRow row;
  row.name = named.name;
  row.shape = fmt::format("{} tokens, {} segments of {}, layer {} of {}", layout.tokens, layout.segments, layout.segment,
                          named.rule.boundary, config.layers);
  row.time_us = median(times) * 1e6;
  const int copied = last.result.copied_tokens;
  const int computed = layout.tokens - 1 - copied + last.result.recomputed_tokens;
  const double share = share_of_work(config, layout, named.rule, computed);
  const double ratio = median(ratios);
  const double apart = std::fabs(double(last.result.probabilities.of_tokens[0]) - dense.result.probabilities.of_tokens[0]);
  constexpr double kSame = 0.05;  // of log-probabilities, K and V as bf16
  row.correct = copied == layout.segments * (layout.segment / kPage) * kPage &&
                (named.rule.rule != Recomputation::Rule::kAll || last.result.tokens != dense.result.tokens || apart < kSame);
  row.note = fmt::format("{:.2f}x computing all ({:.0f} ms); its work is 1/{:.2f}; {} copied, {} of these computed again", ratio,
                         dense.seconds * 1e3, 1 / share, copied, last.result.recomputed_tokens);
  row.metrics = {{"ratio", ratio}, {"work", share}, {"copied", copied}, {"recomputed", last.result.recomputed_tokens}};
  return row;
}

}  // namespace

BenchReport run_segments_bench(const BenchOptions& options) {
  const Layout layout = layout_of(options);
  const bool is_random = !options.random_weights.empty();
  const ModelConfig config =
      is_random ? known_geometry(options.random_weights, options.layers) : load_config(model_path(options.model));
  if (layout.tokens + 1 > config.max_positions)
    throw InputError(fmt::format("--tokens {}: the model has {} positions", layout.tokens, config.max_positions),
                     "lower --tokens");
  const auto device = create_device(options.device, options.threads);
  if (!device->info().reuses_segments)
    throw InputError(fmt::format("device \"{}\" does not reuse the K and V of segments", options.device), "use --device cpu");
  const auto model = is_random ? create_random_model(config, *device) : load_model(model_path(options.model), *device);
  Engine whole(*device, *model, nullptr, options_of(layout, false));
  Engine reusing(*device, *model, nullptr, options_of(layout, true));
  Texts texts(config, layout);
  for (Request& request : texts.known()) {
    reusing.submit(std::move(request));
    reusing.run_all();
  }
  using Rule = Recomputation::Rule;
  const double share = options.share;
  const std::array rules = {NamedRule{"sparsex", {.rule = Rule::kSparseQ, .boundary = options.boundary, .share = share}},
                            NamedRule{"sparsex_nohybrid", {.rule = Rule::kSparseQ, .boundary = 0, .share = share}},
                            NamedRule{"cacheblend", {.rule = Rule::kKeys, .boundary = options.boundary, .share = share}},
                            NamedRule{"epic", {.rule = Rule::kEdges, .boundary = 0}},
                            NamedRule{"none", {.rule = Rule::kNone, .boundary = 0}},
                            NamedRule{"all", {.rule = Rule::kAll, .boundary = 0}}};
  BenchReport report{.name = "segments"};
  for (const NamedRule& named : rules)
    report.rows.push_back(measure(whole, reusing, texts, layout, config, named, options.seconds));
  return report;
}

}  // namespace sluice
