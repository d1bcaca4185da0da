#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "host/serving/engine.h"
#include "host/serving/kv_cache.h"
#include "host/serving/kv_snapshot.h"
#include "host/serving/layer_flows.h"
#include "host/serving/page_cache.h"
#include "host/serving/scheduler.h"

namespace sluice {

/// Of the tokens of a prompt in one layer: float32 [tokens, kv_heads * head_dim] each.
struct KeysAndValues {
  std::unique_ptr<Memory> keys;
  std::unique_ptr<Memory> values;
};

/// A block of a prompt, and where its text stands.
struct FoundBlock {
  int first = 0;  // token
  SegmentIndex::View view;
};

/// What is left to do for a prompt of which some is copied.
struct ReuseWork {
  CopiedTokens tokens;
  std::vector<FoundBlock> blocks;  // that are not copied yet
  std::set<uint64_t> frozen;       // texts that blocks are of
  std::vector<int32_t> looking;    // CopiedTokens::looking_rows, of all blocks that were found
  bool answers = false;            // its last chunk has the prompt's last token, too, from which an answer follows
  bool looks = false;              // `rows` are on their way to the rule's layer
  std::vector<int32_t> rows;       // that are computed: up to that layer, then those that it chooses, or in all layers
  int next = 0;                    // place in `rows`
  std::unique_ptr<Memory> stream;  // float32 [tokens from `begun` on, hidden] before that layer; null: it is the first, or none
  std::unique_ptr<Memory> masses;  // float32 [fact_heads, tokens] that rows which look give; null: nobody asks
  int fact_heads = 1;              // query heads that the rule tells apart; 1: it has sums over all
  int weighed = 0;                 // tokens that have some by now
  KeysAndValues copies;            // of the rule's layer, as they are copied; null: nobody asks
  KeysAndValues computed;          // and as they are computed

  bool is_done() const { return !looks && next == static_cast<int>(rows.size()); }
};

/// A request on its way through the engine.
struct EngineJob : Sequence {
  using Clock = std::chrono::steady_clock;

  Request request;  // its prompt has moved to `tokens`
  RequestResult result;
  std::unique_ptr<RequestState> flow_state;
  std::unique_ptr<ReuseWork> reuse;  // as long as `filling`
  std::vector<uint8_t> turned;       // by token of the prompt: K and V are a copy's; empty: of none
  uint64_t filled_in_turn = 0;       // the last of Engine::State::turns that was its
  bool admitted = false;
  bool decoded = false;    // its first decode step has begun
  bool cancelled = false;  // during a pass; takes effect after it
  bool complete = false;   // every token is there; only the logits of the last are awaited
  int probed_steps = 0;
  Clock::time_point admission;
  Clock::time_point first_decode;

  int generated() const { return static_cast<int>(tokens.size()) - prompt; }
  /// Whether the decode step that comes next reports mass.
  bool is_probed() const {
    return request.probe_every > 0 && result.tokens.size() % static_cast<size_t>(request.probe_every) == 0;
  }
  int stored_tokens() const { return prompt - 1; }  // of the prompt, by prefill; the last one is a decode step
};

/// A pass that the device has been told to run, and whose results are awaited.
struct RunningPass {
  struct Entry {
    EngineJob* job = nullptr;  // null: it has ended
    int prompt_rows = 0;       // rows whose next token the prompt has, and whose log-probabilities are wanted
    bool sampled = false;      // after these, a row whose next token is generated
    bool decoding = false;

    int picks() const { return prompt_rows + (sampled ? 1 : 0); }
  };

  std::vector<Entry> entries;
  bool has_prefill = false;
  int rows = 0;
  EngineJob::Clock::time_point begun;
  std::vector<std::unique_ptr<RequestState>> ended_states;  // of requests that have ended since it began, which it may use
};

/// Everything that one engine owns. engine.cpp makes it and takes requests; engine_step.cpp runs passes.
struct Engine::State {
  State(Device& on, const Model& loaded, const Plan* plan, const EngineOptions& wanted);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  uint64_t submit(Request request);
  void cancel(uint64_t id);
  bool step();
  void settle();
  void update_gauges();

  Device& device;
  const Model& model;
  const ModelConfig& config;
  const EngineOptions options;
  const std::shared_ptr<KvCache> kv;  // other engines' as well, or this one's alone
  Pool& pool;
  PageCache& cache;
  const LayerFlows flows;
  const std::string flow_key;  // a digest of what decodes (SegmentIndex::space); empty: dense attention, or nobody finds segments
  const FieldPlane fields;     // where the flow's fields have pages of their own
  const SchedulerOptions limits;
  Scheduler scheduler;
  std::unique_ptr<Model::Workspace> workspace;
  std::unique_ptr<Device::Picks> picks;
  std::unique_ptr<Device::Picks> reuse_pick;  // of a prompt that `compute_rows` ends
  const bool runs_ahead;
  std::array<RunningPass, 2> passes;
  int running_passes = 0;                 // of these; the oldest first
  EngineJob::Clock::time_point last_end;  // of a pass
  std::vector<SampleRow> choices;         // of one pass, as many of each entry as it has picks
  std::vector<Sampled> sampled;           // as many
  std::vector<float> mass;                // [layers, max_batch, kv_heads]
  std::vector<AttentionProbe> probes;     // [layers], into `mass`

  std::unordered_map<uint64_t, std::unique_ptr<EngineJob>> jobs;
  std::vector<RequestResult> finished;
  std::function<void(uint64_t, const GeneratedToken&)> callback;
  uint64_t last_id = 0;
  bool stepping = false;
  bool any_cancelled = false;
  EngineStats stats;
  BatchBuilder reuse_batch;              // of a chunk of a prompt that is partly copied
  std::vector<int32_t> reuse_rows;       // the same
  std::vector<float> reuse_masses;       // of the prompt whose rows are chosen: [fact_heads, tokens]
  std::unique_ptr<Memory> spare_masses;  // of an earlier prompt: to get memory takes longer than to choose
  uint64_t turns = 0;                    // chunks of such prompts
  bool may_fill = false;                 // somebody was filled when it was looked last, or has begun since

 private:
  void check(const Request& request) const;
  void check_states(int64_t tokens, int prompt) const;
  void check_segments(const Request& request) const;
  /// Refuses a rule that is not for this model, or for blocks of another size.
  void check_rule(const RecomputeRule& rule) const;
  bool is_sparse(int layer) const { return flows.of(layer) != nullptr; }
  /// Pages that the states of each flow are for, of a request of so many tokens whose prompt has `prompt`.
  std::vector<int> state_pages(int tokens, int prompt) const;

  void begin(EngineJob& job);
  /// Of decode steps in layers with a pattern, all heads: pages that are read, and those that dense attention would read.
  void count_pattern_pages(const PassBatch& batch);
  void import_snapshot(EngineJob& job);
  /// Of each group, those that have the first tokens of a sequence. No group has forgotten any but under a pattern.
  PagesByGroup pages_with(const EngineJob& job, int tokens) const;
  SlotsByGroup slots_with(int tokens) const;
  /// Recomputes the fields that nobody had beside known K and V.
  void refresh_stale(EngineJob& job);
  /// Computes the fields of the first `given` tokens, whose K and V have come from elsewhere.
  void refresh_given(const EngineJob& job, int given);
  void before_decode(const ScheduledPass& pass) const;

  // Segments (engine_segments.cpp, engine_reuse.cpp).

  bool takes_segments(const EngineJob& job) const;
  /// Copies what is known of a job's segments; the rest of its prompt is then computed by `advance_reuse`.
  void begin_reuse(EngineJob& job);
  /// Whether the pages of a view still hold what they did.
  bool is_there(const SegmentIndex::View& view) const;
  /// Reads what a layer keeps of the prompt but its last token, which all have a slot.
  void read_kept(const EngineJob& job, int layer, const KeysAndValues& kept) const;
  /// Fills what the rule's layer has to say of copied tokens, once all are computed there.
  void fill_layer_fact(const ReuseWork& work, CopyFact fact, std::span<float> numbers) const;
  void fill_masses(const ReuseWork& work, std::span<float> numbers) const;
  void fill_changes(const ReuseWork& work, std::unique_ptr<Memory> KeysAndValues::*which, std::span<float> numbers) const;
  /// Computes chunks of those that are filled, by rank, of as many rows as a pass takes; false: nobody is.
  bool advance_reuse();
  /// The first in rank; null: nobody is filled.
  EngineJob* next_to_fill();
  std::span<const int32_t> next_chunk(const ReuseWork& work) const;
  void fill_chunk(EngineJob& job);
  /// Leaves all that is not known by a prefix to the passes that the scheduler plans.
  void give_up_reuse(EngineJob& job);
  bool is_filling() const;
  /// Whether what lies beside the pool while prompts are filled stays within half of the pool, with this one's, and the device
  /// has that.
  bool has_memory_for(const EngineJob& job, const ReuseWork& work) const;
  /// Looks for a segment's blocks.
  void find_blocks(const EngineJob& job, const Segment& segment, ReuseWork& work) const;
  /// Copies the blocks that were found, in layers from `first_layer` on.
  void copy_blocks(const EngineJob& job, ReuseWork& work, int first_layer) const;
  /// Those that are computed up to the rule's layer.
  std::vector<int32_t> rows_to_look_with(const EngineJob& job, const ReuseWork& work) const;
  /// Those whose pages others have taken since they were found.
  void lose_taken_blocks(ReuseWork& work) const;
  /// What of a job is exact and what others may look for, as far as it is known which blocks are copies.
  void note_copies(EngineJob& job, const ReuseWork& work);
  /// Takes what a rule that goes by a layer needs; false: there is no memory.
  bool reserve_reuse(const EngineJob& job, ReuseWork& work);
  PassBatch batch_of(const EngineJob& job, std::span<const int32_t> positions);
  Matrix stream_of(const EngineJob& job, const ReuseWork& work) const;
  /// Those of the rows, for as long as nobody else calls it.
  void set_tokens(const EngineJob& job, std::span<const int32_t> rows, Model::LayerPass& pass);
  /// A chunk on its way to the rule's layer.
  void look(const EngineJob& job, ReuseWork& work);
  /// Of a job whose rows have come to the rule's layer.
  void choose_rows(EngineJob& job, ReuseWork& work);
  /// A chunk of the chosen rows.
  void compute_rows(const EngineJob& job, ReuseWork& work);
  void end_reuse(EngineJob& job);
  /// The first token of an answer, from what `compute_rows` has left.
  void take_answer(EngineJob& job);
  /// What is known of the job's segments, and lies in full pages, others may find from now on.
  void offer_segments(const EngineJob& job) const;
  /// The rest as well, of a job that ends.
  void offer_last_segments(EngineJob& job);
  /// Those of its prompt, and its answer.
  static std::vector<Segment> segments_of(const EngineJob& job);
  /// Those of the blocks of a segment whose K and V are no copies. What a flow decodes is offered to the same flow.
  void offer_segment(const EngineJob& job, const Segment& segment) const;
  /// Tokens, the first, whose K and V may be offered, to anybody or to the same flow.
  int offered_tokens(const EngineJob& job) const;
  /// Admits who can run, and plans the next pass.
  const ScheduledPass& plan();
  /// Begins the next pass; false if there is nothing to do.
  bool launch();
  /// All of a request's prompt is stored but its last token: others may find its segments, and its answer begins.
  void begin_decoding(EngineJob& job) const;
  void run(const ScheduledPass& pass);
  /// How the tokens that follow the pass's are picked: `choices`.
  void choose(const ScheduledPass& pass);
  /// Copies the rows of `logits` that requests asked for.
  void keep_logits(const ScheduledPass& pass, const Matrix& logits) const;
  /// Whether the pass after the one that runs can begin before the results of this are known.
  bool can_run_ahead();
  /// Waits for the oldest pass that runs, and ends it.
  void end_pass();
  /// Hands out what was sampled, keeps what requests asked for, ends requests.
  void collect(RunningPass& pass);
  void keep_mass(EngineJob& job, size_t entry);
  void accept(EngineJob& job, const GeneratedToken& generated);
  void finish(EngineJob& job, FinishReason reason);
  void finish_cancelled();
};

}  // namespace sluice
