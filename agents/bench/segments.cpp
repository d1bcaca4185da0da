// Time to the first token of a prompt most of whose text stood elsewhere before, by rule, beside computing all of it: in turns,
// on the same texts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/bench/bench.h"
#include "agents/bench/device_limits.h"
#include "agents/bench/segment_copies.h"
#include "agents/bench/segment_texts.h"
#include "agents/bench/segments_together.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/recompute_rules.h"
#include "agents/evaluation/trace_options.h"
#include "host/serving/engine.h"
#include "host/weights/model_path.h"
#include "host/weights/random_weights.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

/// Rows of a pass, unless somebody says how many.
constexpr int kChunk = 512;
constexpr int kLargeChunk = 4096;  // where a device is fast

EngineOptions options_of(const SegmentLayout& layout, bool prefix_cache, int chunk) {
  EngineOptions options;
  options.page = kSegmentPage;
  options.max_batch = 1;
  options.max_pass_tokens = chunk;
  options.prefix_cache = prefix_cache;
  const int tokens = prefix_cache ? 3 * layout.tokens + 128 * layout.segments : layout.tokens + kSegmentPage;
  options.pages = pages_for(tokens, kSegmentPage) + 4;
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

struct NamedRule {
  std::string name;
  std::shared_ptr<const RecomputeRule> rule;

  /// Below it all rows are computed.
  int layer() const { return rule->reads_layer() ? rule->rule().layer : 0; }
};

/// Multiplications of rows with weights and with keys and values: those of a rule's prompt, of those of a whole one.
double share_of_work(const ModelConfig& config, const SegmentLayout& layout, const NamedRule& named, int computed) {
  const double hidden = config.hidden;
  const double heads = double(config.query_heads) * config.head_dim;
  const double qkv = hidden * (heads + 2.0 * config.kv_heads * config.head_dim);
  const double row = qkv + heads * hidden + 3 * hidden * config.intermediate;
  const double attention = 2 * heads * layout.tokens / 2;  // of a row in the middle
  const double all = double(layout.tokens) * config.layers * (row + attention);
  const int below = named.layer();
  double work =
      double(layout.tokens) * below * (row + attention) + double(computed) * (config.layers - below) * (row + attention);
  const int looking = layout.tokens - layout.segments * layout.segment;
  const bool reads_masses = named.rule->reads(CopyFact::kMass);
  const bool reads_changes = named.rule->reads(CopyFact::kKeyChange) || named.rule->reads(CopyFact::kValueChange);
  const bool looks_at_copies = reads_masses && !reads_changes && below == 0;  // as engines do
  if (named.rule->reads_layer()) work += (looks_at_copies ? looking : layout.tokens) * qkv;
  if (reads_masses) work += looking * 2 * attention;
  return work / all;
}

/// Seconds that any prompt takes beside its multiplications, and those of copies in all layers.
struct FixedCosts {
  double head = 0;  // reading the vectors of the vocabulary, for the last row
  double copies = 0;
};

/// The time to the first token that follows from computing all: its multiplications by share, and what is beside them.
double modelled_seconds(const ModelConfig& config, const NamedRule& named, double share, double dense, const FixedCosts& fixed) {
  const double copied_layers = double(config.layers - named.layer()) / config.layers;
  return share * (dense - fixed.head) + fixed.head + copied_layers * fixed.copies;
}

BenchRow measure(Engine& whole, Engine& reusing, SegmentTexts& texts, const SegmentLayout& layout, const ModelConfig& config,
                 const NamedRule& named, const FixedCosts& fixed, double seconds) {
  std::vector<double> times, ratios;
  Timed last, dense;
  const auto begun = Clock::now();
  constexpr size_t kLeast = 3;
  while (times.size() < kLeast || std::chrono::duration<double>(Clock::now() - begun).count() < seconds) {
    Request request = texts.prompt();
    request.recompute = named.rule;
    Request plain = request;
    plain.segments.clear();
    dense = time_first_token(whole, std::move(plain));
    request.given = dense.result.tokens;  // whose likelihoods are compared
    last = time_first_token(reusing, std::move(request));
    times.push_back(last.seconds);
    ratios.push_back(dense.seconds / last.seconds);
  }
  BenchRow row;
  row.name = named.name;
  row.shape = fmt::format("{} tokens, {} segments of {}, layer {} of {}", layout.tokens, layout.segments, layout.segment,
                          named.layer(), config.layers);
  row.time_us = median(times) * 1e6;
  const int copied = last.result.copied_tokens;
  const int computed = layout.tokens - 1 - copied + last.result.recomputed_tokens;
  const double ratio = median(ratios);
  const double share = share_of_work(config, layout, named, computed);
  const double modelled = dense.seconds / modelled_seconds(config, named, share, dense.seconds, fixed);
  const double apart = std::fabs(double(last.result.probabilities.of_tokens[0]) - dense.result.probabilities.of_tokens[0]);
  constexpr double kSame = 0.05;  // of log-probabilities, K and V as bf16
  row.correct = copied == layout.segments * (layout.segment / kSegmentPage) * kSegmentPage &&
                (named.rule->rule().kind != Recompute::Kind::kAll || apart < kSame);
  row.note = fmt::format("{:.2f}x computing all ({:.0f} ms), modelled {:.2f}x; {} copied, {} of these computed again", ratio,
                         dense.seconds * 1e3, modelled, copied, last.result.recomputed_tokens);
  row.metrics = {{"ratio", ratio},
                 {"modelled", modelled},
                 {"work", share},
                 {"copied", copied},
                 {"recomputed", last.result.recomputed_tokens}};
  return row;
}

/// The shipped rules, or those that are asked for.
std::vector<NamedRule> rules_of(const BenchOptions& options, const ModelConfig& config) {
  std::vector<NamedRule> rules;
  for (const std::string& flow : options.rules) {
    const std::shared_ptr<const Recompute> traced = read_flow(flow).trace(trace_options(config)).recompute;
    if (traced == nullptr)
      throw InputError(fmt::format("{} has no flow.recompute", flow), "give flows that say what is computed");
    if (traced->kind == Recompute::Kind::kSelected && traced->graph.geometry.page != kSegmentPage)
      throw InputError(
          fmt::format("{} is for blocks of {} tokens, and here are {}", flow, traced->graph.geometry.page, kSegmentPage),
          fmt::format("give it page = {}", kSegmentPage));
    rules.push_back({flow, make_recompute_rule(traced)});
  }
  if (!rules.empty()) return rules;
  RecomputeRules shipped(config);
  const std::optional<double> share = options.share;
  for (const auto& choice : {RecomputeChoice{"sparsex", options.boundary, share}, RecomputeChoice{"sparsex_nohybrid", {}, share},
                             RecomputeChoice{"cacheblend", options.boundary, share}, RecomputeChoice{"epic", {}, {}},
                             RecomputeChoice{"none", {}, {}}, RecomputeChoice{"all", {}, {}}})
    rules.push_back({choice.rule, shipped.find_shipped(choice, kSegmentPage)});
  return rules;
}

}  // namespace

BenchReport run_segments_bench(const BenchOptions& options) {
  const SegmentLayout layout = segment_layout_of(options);
  const bool is_random = !options.random_weights.empty();
  const ModelConfig config =
      is_random ? known_geometry(options.random_weights, options.layers) : load_config(model_path(options.model));
  if (layout.tokens + 1 > config.max_positions)
    throw InputError(fmt::format("--tokens {}: the model has {} positions", layout.tokens, config.max_positions),
                     "lower --tokens");
  const std::vector<NamedRule> rules = rules_of(options, config);
  const auto device = create_device(options.device, options.threads);
  const auto model = is_random ? create_random_model(config, *device) : load_model(model_path(options.model), *device);
  if (options.together > 0) {
    BenchReport report{.name = "segments"};
    for (const NamedRule& named : rules)
      add_requests_together(*device, *model, layout, options, named.name, named.rule, report.rows);
    return report;
  }
  const int usual_chunk = device->info().works_beside_host ? kLargeChunk : kChunk;
  const int chunk = options.chunk > 0 ? options.chunk : usual_chunk;
  BenchReport report{.name = "segments", .copy_tb_per_s = measure_copy_of(options.device, options.threads)};
  report.rows.push_back(measure_segment_copies(*device, config, layout, options.seconds));
  set_limits(report);
  const double head_bytes = double(config.vocabulary) * config.hidden * static_cast<double>(size_of(device->info().activation));
  const FixedCosts fixed{.head = head_bytes / (report.copy_tb_per_s * 1e12), .copies = report.rows.front().time_us * 1e-6};
  Engine whole(*device, *model, nullptr, options_of(layout, false, chunk));
  Engine reusing(*device, *model, nullptr, options_of(layout, true, chunk));
  SegmentTexts texts(config, layout, layout.segments);
  for (Request& request : texts.known()) {
    reusing.submit(std::move(request));
    reusing.run_all();
  }
  for (const NamedRule& named : rules)
    report.rows.push_back(measure(whole, reusing, texts, layout, config, named, fixed, options.seconds));
  return report;
}

}  // namespace sluice
