#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sluice {

/// Counts of values by upper bound, as Prometheus wants them.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);
  /// Appends the metric as text; `labels` without braces.
  void write(std::string& text, const std::string& name, const std::string& about, const std::string& labels) const;

 private:
  std::vector<double> bounds_;    // ascending
  std::vector<uint64_t> counts_;  // of each bound, then of what is larger
  double sum_ = 0;
};

/// Times of a request that has ended, in seconds.
struct RequestTimes {
  double queue = 0;    // from arrival to admission
  double prefill = 0;  // from admission to the first token
  double decode = 0;   // from the first token to the last
  int tokens = 0;      // generated
  double total() const { return queue + prefill + decode; }
};

/// What engines hold at the moment, all together.
struct EngineGauges {
  int running = 0;
  int waiting = 0;
  int pages_used = 0;
  int pages = 0;
  int frozen_pages = 0;  // of texts that stay known
  uint64_t preemptions = 0;
};

/// Counters of the generation API under the names that vLLM gives them. Safe to use from several threads.
class GenerationMetrics {
 public:
  explicit GenerationMetrics(const std::string& model);

  void first_token(double seconds_since_arrival, int prompt_tokens);
  void next_token(double seconds_since_last);
  /// A request has generated all of its tokens; `reason` is "stop", "length" or "abort".
  void finished(const std::string& reason, const RequestTimes& times, int prompt_tokens, int cached_tokens);
  /// Of a request that has ended: prompt tokens of segments, those of them that were copied from where their text stood before,
  /// and of these the ones that were computed again.
  void reused(int marked_tokens, int copied_tokens, int recomputed_tokens);
  /// It was given up before it was admitted.
  void abandoned();
  void set_gauges(const EngineGauges& gauges);

  /// Everything in Prometheus's text format, version 0.0.4.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  const std::string labels_;
  Histogram first_token_;
  Histogram inter_token_;
  Histogram per_output_token_;
  Histogram total_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram inference_;
  uint64_t prompt_tokens_ = 0;
  uint64_t generated_tokens_ = 0;
  uint64_t prefix_queries_ = 0;  // tokens
  uint64_t prefix_hits_ = 0;     // tokens
  uint64_t marked_ = 0;          // tokens
  uint64_t copied_ = 0;          // of these
  uint64_t recomputed_ = 0;      // tokens
  std::map<std::string, uint64_t> finished_ = {{"abort", 0}, {"length", 0}, {"stop", 0}};
  EngineGauges gauges_;
};

}  // namespace sluice
