#pragma once

#include <memory>
#include <span>
#include <vector>

#include "agents/evaluation/runner.h"
#include "host/serving/engine.h"
#include "host/text/tokenizer.h"
#include "host/transformer/model.h"

namespace sluice {

/// One prompt of a batch: its tokens, K and V of what it shares with its document, and how its generation may end early.
struct PrefilledPrompt {
  std::vector<int32_t> tokens;
  std::shared_ptr<const KvSnapshot> snapshot;  // null if the prompts share nothing
  SamplingOptions sampling;
  std::vector<int32_t> given;  // what is fed in place of an answer
  int max_tokens = 16;
  std::string stop;               // text; empty: none
  std::vector<int32_t> expected;  // of a generation that leaves these tokens nothing counts that follows; empty: unknown
};

/// Throws InputError for one without tokens.
PrefilledPrompt prompt_of(const Job& job, const Tokenizer& tokenizer);

class EngineBatch : public PrefilledBatch {
 public:
  size_t bytes() const override;

  std::vector<PrefilledPrompt> prompts;  // documents in order
};

/// What the prompts that are decoded together may take.
struct BatchRoom {
  size_t pool_bytes = size_t{768} << 20;  // of K and V in bf16, however many prompts there are; snapshots take twice as much
  int prompts = 16;
};

/// That of a device: a GPU with memory to spare takes more at a time, since a step of few prompts leaves it idle.
BatchRoom room_on(const Device& device);

/// How many prompts of `tokens` tokens are decoded together.
int prompts_together(const ModelConfig& config, int tokens, const BatchRoom& room = {});

/// An engine for `prompts` with their answers, `plan` null: dense. Its pool holds all of them if `room` allows it, and the
/// longest in any case; what does not fit waits in the engine.
EngineOptions engine_options(const std::vector<PrefilledPrompt>& prompts, const ModelConfig& config, const Plan* plan,
                             const BatchRoom& room = {});

/// K and V of documents that were prefilled before: others may begin as these did.
class KnownBeginnings {
 public:
  /// The longest that `tokens` begin with; null if there is none that saves much.
  std::shared_ptr<const KvSnapshot> find(std::span<const int32_t> tokens) const;
  /// Those that are kept until the next batch.
  void forget_last() { last_.clear(); }
  void forget() {
    last_.clear();
    texts_.clear();
  }
  /// `is_text`: of a window of a text (kScoredOfText tokens are given), which is kept longer, as far as there is room.
  void add(std::shared_ptr<const KvSnapshot> snapshot, bool is_text);

 private:
  using Snapshots = std::vector<std::shared_ptr<const KvSnapshot>>;

  Snapshots last_;
  Snapshots texts_;  // which longer windows begin with; no more than some hundred MB
};

/// Prefills the common text of each document once, with dense attention; where `known` has much of it, only the rest is computed.
/// `known` then has these documents, too. Throws InputError if a prompt is too long for the model.
std::unique_ptr<EngineBatch> prefill_documents(const std::vector<JobDocument>& documents, Device& device, const Model& model,
                                               const Tokenizer& tokenizer, KnownBeginnings& known, const BatchRoom& room = {});

/// The same prompts, whose K and V are to be computed by whoever answers them.
EngineBatch without_snapshots(const EngineBatch& batch);
/// The same prompts with what they share prefilled under the patterns of a flow, in place of densely.
EngineBatch prefill_under(const Plan& plan, const EngineBatch& batch, Device& device, const Model& model,
                          const BatchRoom& room = {});

}  // namespace sluice
