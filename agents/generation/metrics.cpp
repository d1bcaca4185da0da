#include "agents/generation/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

// The bounds of vLLM's histograms, in seconds.
std::vector<double> first_token_bounds() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
}

std::vector<double> token_bounds() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

std::vector<double> request_bounds() {
  return {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}

void write_header(std::string& text, const std::string& name, const std::string& about, const char* type) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, about, name, type);
}

template <class Value>
void write_value(std::string& text, const std::string& name, const std::string& about, const char* type,
                 const std::string& labels, Value value) {
  write_header(text, name, about, type);
  text += fmt::format("{}{{{}}} {}\n", name, labels, value);
}

/// `value` as the value of a label.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

}  // namespace

void Histogram::observe(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(std::string& text, const std::string& name, const std::string& about, const std::string& labels) const {
  write_header(text, name, about, "histogram");
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, below);
  }
  text += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, below);
}

GenerationMetrics::GenerationMetrics(const std::string& model)
    : labels_(fmt::format("model_name=\"{}\"", escaped(model))),
      first_token_(first_token_bounds()),
      inter_token_(token_bounds()),
      per_output_token_(token_bounds()),
      total_(request_bounds()),
      queue_(request_bounds()),
      prefill_(request_bounds()),
      decode_(request_bounds()),
      inference_(request_bounds()) {}

void GenerationMetrics::first_token(double seconds_since_arrival, int prompt_tokens) {
  const std::lock_guard lock(mutex_);
  first_token_.observe(seconds_since_arrival);
  prompt_tokens_ += static_cast<uint64_t>(prompt_tokens);
  ++generated_tokens_;
}

void GenerationMetrics::next_token(double seconds_since_last) {
  const std::lock_guard lock(mutex_);
  inter_token_.observe(seconds_since_last);
  ++generated_tokens_;
}

void GenerationMetrics::finished(const std::string& reason, const RequestTimes& times, int prompt_tokens, int cached_tokens) {
  const std::lock_guard lock(mutex_);
  ++finished_[reason];
  prefix_queries_ += static_cast<uint64_t>(prompt_tokens);
  prefix_hits_ += static_cast<uint64_t>(cached_tokens);
  total_.observe(times.total());
  queue_.observe(times.queue);
  prefill_.observe(times.prefill);
  decode_.observe(times.decode);
  inference_.observe(times.prefill + times.decode);
  if (times.tokens > 1) per_output_token_.observe(times.decode / (times.tokens - 1));
}

void GenerationMetrics::reused(int marked_tokens, int copied_tokens, int recomputed_tokens) {
  const std::lock_guard lock(mutex_);
  marked_ += static_cast<uint64_t>(marked_tokens);
  copied_ += static_cast<uint64_t>(copied_tokens);
  recomputed_ += static_cast<uint64_t>(recomputed_tokens);
}

void GenerationMetrics::abandoned() {
  const std::lock_guard lock(mutex_);
  ++finished_["abort"];
}

void GenerationMetrics::set_gauges(const EngineGauges& gauges) {
  const std::lock_guard lock(mutex_);
  gauges_ = gauges;
}

std::string GenerationMetrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto gauge = [&](const char* name, const char* about, auto value) {
    write_value(text, std::string("vllm:") + name, about, "gauge", labels_, value);
  };
  const auto counter = [&](const char* name, const char* about, uint64_t value) {
    write_value(text, std::string("vllm:") + name, about, "counter", labels_, value);
  };
  const auto histogram = [&](const Histogram& values, const char* name, const char* about) {
    values.write(text, std::string("vllm:") + name, about, labels_);
  };
  gauge("num_requests_running", "Requests in the batches of engines.", gauges_.running);
  gauge("num_requests_waiting", "Requests that wait for a place in a batch.", gauges_.waiting);
  gauge("kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.",
        gauges_.pages == 0 ? 0. : static_cast<double>(gauges_.pages_used) / gauges_.pages);
  counter("prompt_tokens_total", "Prompt tokens of requests that have their first token.", prompt_tokens_);
  counter("generation_tokens_total", "Generated tokens.", generated_tokens_);
  counter("num_preemptions_total", "Requests that gave up their pages for a while.", gauges_.preemptions);
  counter("prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.", prefix_queries_);
  counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", prefix_hits_);
  // vLLM has no names for these.
  write_value(text, "sluice:segment_tokens_total", "Prompt tokens in segments.", "counter", labels_, marked_);
  write_value(text, "sluice:segment_copied_tokens_total", "Prompt tokens copied from where their text stood before.", "counter",
              labels_, copied_);
  write_value(text, "sluice:segment_recomputed_tokens_total", "Of those, the ones that were computed again.", "counter", labels_,
              recomputed_);
  write_value(text, "sluice:frozen_pages", "Pages of texts that stay known, each counted once.", "gauge", labels_,
              gauges_.frozen_pages);
  write_header(text, "vllm:request_success_total", "Requests that ended, by reason.", "counter");
  for (const auto& [reason, count] : finished_) {
    text += fmt::format("vllm:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels_, reason, count);
  }
  histogram(first_token_, "time_to_first_token_seconds", "From arrival to the first token.");
  histogram(inter_token_, "inter_token_latency_seconds", "Between tokens of a request.");
  histogram(per_output_token_, "request_time_per_output_token_seconds", "Mean time between tokens of a request.");
  histogram(total_, "e2e_request_latency_seconds", "From arrival to the last token.");
  histogram(queue_, "request_queue_time_seconds", "From arrival to admission.");
  histogram(prefill_, "request_prefill_time_seconds", "From admission to the first token.");
  histogram(decode_, "request_decode_time_seconds", "From the first token to the last.");
  histogram(inference_, "request_inference_time_seconds", "From admission to the last token.");
  return text;
}

}  // namespace sluice
