#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/serving/frozen_pool.h"
#include "host/serving/segment_reuse.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

struct SamplingOptions {
  float temperature = 0;  // 0: greedy
  int top_k = 0;          // 0: all
  float top_p = 1;
  uint64_t seed = 0;

  bool greedy() const { return temperature <= 0; }
};

/// K and V of a prompt, outside any pool, so that several engines of a device (dense and flows with different page sizes) can
/// decode from one prefill.
struct KvSnapshot {
  std::vector<int32_t> tokens;
  std::shared_ptr<const Memory> memory;  // of the device: float32 [keys and values, layers, tokens, kv_heads, dim]
  const Device* device = nullptr;

  size_t bytes() const { return memory == nullptr ? 0 : memory->bytes(); }
};

struct Request {
  std::vector<int32_t> prompt;
  int max_tokens = 16;
  SamplingOptions sampling;
  std::vector<int32_t> stop_tokens;  // generation ends after one of these (it is part of the output)
  bool ignore_eos = false;           // the model's own end tokens do not stop
  bool want_logits = false;          // keep every row of logits: [prompt + generated, vocabulary]
  bool want_snapshot = false;        // keep K and V of the prompt but its last token
  int probe_every = 0;  // mass per layer of each so manyth decode step, from the first one on (a dense pass each); 0: of none
  /// Tokens that are generated whatever the logits say, from the first step on, and that end nothing: a text is fed (teacher
  /// forcing).
  std::vector<int32_t> given;
  int likely = -1;  // keep log-probabilities of what is generated, and of so many most likely tokens; -1: none
  /// And of the tokens of the prompt but the first, by dense attention. The whole prompt is then computed.
  bool prompt_probabilities = false;
  /// K and V of a prefix of the prompt, instead of computing them; but for rows that the flow reads the masses of.
  std::shared_ptr<const KvSnapshot> snapshot;
  /// A prefix that the engine knows is copied to pages of the request's own, as if another engine had computed its K and V and
  /// sent them, instead of being shared.
  bool copy_prefix = false;
  /// Parts of the prompt, in their order, whose text may have stood elsewhere: K and V of their blocks that are known are copied,
  /// and of them is computed again what `recompute` says (null: all). They are found by the same tenant and extra key alone.
  /// All of it is computed where the prompt's logits or log-probabilities are wanted, a snapshot is given or wanted, pages are
  /// the request's own (copy_prefix), or a flow's after stage reads rows of the prompt; and where memory for it is short.
  std::vector<Segment> segments;
  std::shared_ptr<const RecomputeRule> recompute;
  std::string tenant;  // whose segments these are
  /// The name under which the answer is a segment for later prompts, as far as its K and V are known to others: not of flows.
  std::optional<std::string> answer_extra_key = std::nullopt;
  /// The prompt is computed, whatever is known of its text, and becomes a frozen text of `tenant` (FrozenPool): it is one
  /// segment.
  bool freeze = false;
  int priority = 0;     // higher first; equal: in order of arrival, but callers share what there is
  uint64_t caller = 0;  // whose it is
};

enum class FinishReason : uint8_t {
  kStop,
  kLength,
  kCancelled,
  kNotFinite,  // the model's logits for it were NaN or infinite: its weights are damaged, or overflow on this request
};

/// What a model gave to tokens in a row, each after those before it: natural logarithms, at temperature 1.
struct TokenProbabilities {
  std::vector<float> of_tokens;
  int likely_tokens = 0;            // of each place
  std::vector<LikelyToken> likely;  // [tokens, likely_tokens], the most likely first

  double sum() const;
  void reserve(size_t tokens, int likely);
  void add(const RowProbabilities& row);
};

/// A token as it is generated.
struct GeneratedToken {
  int32_t token = 0;
  const RowProbabilities* probabilities = nullptr;  // null: they were not asked for
  const TokenProbabilities* prompt = nullptr;       // of the prompt but its first token, with the first; null: likewise
};

struct RequestResult {
  uint64_t id = 0;
  std::vector<int32_t> tokens;  // generated
  FinishReason reason = FinishReason::kLength;
  std::vector<float> logits;                // if asked for
  TokenProbabilities probabilities;         // of `tokens`, if asked for
  TokenProbabilities prompt_probabilities;  // of the prompt but its first token, if asked for
  std::shared_ptr<const KvSnapshot> snapshot;
  std::vector<double> mass;   // [layers] mean over steps and heads; 1 for dense layers
  int cached_tokens = 0;      // prompt tokens found in the prefix cache
  int copied_tokens = 0;      // of the others, those whose K and V were copied from where the text stood before
  int recomputed_tokens = 0;  // of these, those that were computed again, in all layers from that of the rule on
  uint64_t frozen = 0;        // the number of the frozen text that the prompt is (Request::freeze); 0: it is none
  int preemptions = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;  // from when the first decode step is begun, which a pass before it may hold up, to the last token
};

/// Throws InputError if one of them ended since the model's logits were not finite: for those who want all of them.
void require_finite(const std::vector<RequestResult>& results);

class KvCache;

/// Layers that see no more than the last tokens, and so need keep no more.
struct LayerWindow {
  std::vector<int> layers;
  int tokens = 0;  // that a row sees, its own included
};

struct EngineOptions {
  int pages = 0;  // of the pool; 0: from `pool_bytes`
  size_t pool_bytes = size_t{256} << 20;
  int max_batch = 64;         // sequences in one pass
  int max_pass_tokens = 512;  // rows in one pass: the size of a prefill chunk
  bool prefix_cache = true;
  int page = 16;  // tokens a page, where no flow says otherwise
  DataType kv = DataType::kBF16;
  /// Beside those of the model (ModelConfig::windows), in the place of those of the same layers. No layer with a window runs a
  /// flow. Layers with the same window are a group that keeps no more than that. One group keeps everything, though: the layers
  /// without a window or, where each has one, those of the window that most have.
  std::vector<LayerWindow> windows = {};
  /// Groups of layers with a window keep everything: K and V can be given from engine to engine (KvSnapshot), and be had from one
  /// that does not `forget_unread` either.
  bool keep_all = false;
  /// Layers with a pattern keep no more than what later rows read; else all tokens, in the order of positions.
  bool forget_unread = true;
  /// Shared with other engines of the same model on the same device (create_shared_cache), which then find each other's K and V.
  /// `pages`, `pool_bytes`, `prefix_cache`, `page`, `kv` and `windows` are then the cache's, and what is said of them here is not
  /// read. Null: a cache of the engine's own.
  std::shared_ptr<KvCache> cache = nullptr;
  size_t state_bytes = 0;  // that the states of a whole batch may take; 0: as much as the pool and 1 GiB
  uint64_t seed = 0;       // mixed into each request's seed for `random` and `approx_topk`
  /// Prepare a pass while the one before it runs, where nobody is to be preempted. A request that stops at a token is then
  /// computed for one pass more, in vain, and who comes meanwhile is in the pass after. Unset: on devices that work beside the
  /// host.
  std::optional<bool> run_ahead = std::nullopt;
};

struct EngineStats {
  uint64_t decode_passes = 0;  // passes without prefill rows
  uint64_t prefill_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_hits = 0;    // tokens
  uint64_t copied_tokens = 0;  // whose K and V came from where their text stood before
  int pages_free = 0;          // those kept only for their prefix included
  int pages_total = 0;
  const void* pool = nullptr;  // that these pages are of: the same for engines that share it
  int64_t most_tokens = 0;     // of a request, if nobody else has pages
  int running = 0;
  int waiting = 0;
  uint64_t pages_attended = 0;
  uint64_t pages_available = 0;
  size_t overhead_bytes = 0;  // beyond weights and the pool
  int frozen_pages = 0;       // of texts that stay known, each counted once
};

/// The serving loop: continuous batching over a paged pool. Owned by one thread.
///
/// The last token of a prompt always runs as a decode step, so that every generated token is the flow's responsibility.
class Engine {
 public:
  /// `flow` may be null (dense). `model` and `device` must outlive the engine.
  Engine(Device& device, const Model& model, const Plan* flow, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Throws InputError if it can never run: a prompt longer than the pool or the model's positions, a
  /// token outside the vocabulary, an empty prompt, states of the flow that would fill the memory, or a frozen text that cannot
  /// be (FrozenPool::check), or on a device that does not reuse segments.
  uint64_t submit(Request request);
  void cancel(uint64_t id);
  /// One pass: admits, preempts, runs the model, samples. The next one may run already when this returns
  /// (EngineOptions::run_ahead). Returns false if there was nothing to do, or all that waits does so for another engine's pages.
  /// A request whose logits are not finite ends alone (FinishReason::kNotFinite). After an exception the engine can only be
  /// destroyed.
  bool step();
  /// Prompt tokens of a request that were not computed: found in the prefix cache, or copied and not computed again. From when
  /// that is known until it ends; else 0.
  int cached_tokens(uint64_t id) const;
  /// Texts that stay known, in the order of their numbers: of all engines that share the cache.
  std::vector<FrozenText> frozen_texts();
  bool keeps_texts() const;
  /// A frozen text is not found any more. False: there is none of this number.
  bool thaw(uint64_t id);
  /// Ends the pass that runs ahead, if there is one: no other does when this returns. Throws as `step` does.
  void settle();
  /// Results of requests that ended since the last call.
  std::vector<RequestResult> take_finished();
  /// Runs `step` until every request has ended. Throws InputError as `require_finite` does, and where requests wait for pages of
  /// another engine's.
  std::vector<RequestResult> run_all();
  /// Called for every generated token, in the engine's thread. It may submit and cancel, and must not throw.
  void on_token(std::function<void(uint64_t id, const GeneratedToken& token)> callback);

  /// Waits for the device.
  EngineStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
