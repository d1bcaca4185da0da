#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/cuda/flow/flow.h"
#include "kernels/cuda/pages/batch_upload.h"
#include "kernels/cuda/pages/pool.h"
#include "kernels/cuda/products/decode_mlp.h"
#include "kernels/cuda/products/layer_chain.h"
#include "kernels/cuda/products/matmul.h"
#include "kernels/cuda/runtime/gang.h"
#include "kernels/cuda/runtime/side_stream.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/device.h"

namespace sluice {

/// The GPU that is current. Throws InputError if there is none that the kernels
/// run on.
std::unique_ptr<Device> create_cuda_device();

}  // namespace sluice

namespace sluice::cuda {

class CudaFlowState;
class RegisteredFlow;

/// A GPU: one stream, on which operations run in order while the host goes on. What passes and lists of rows are sent on beside
/// it, and so are copies of text that stood elsewhere until somebody wants their layers. Only `read`, `take`, `sample` that gives
/// results, `synchronize` and what moves whole weights, pages or host memory waits. Activations are bf16 or float32, each matrix
/// as it says; sums are float32.
class CudaDevice final : public Device {
 public:
  CudaDevice();

  const DeviceInfo& info() const override { return info_; }

  std::unique_ptr<Memory> allocate(size_t bytes) override;
  void write(void* target, const void* host_source, size_t bytes) override;
  void read(void* host_target, const void* source, size_t bytes) override;
  void synchronize() override;
  size_t free_bytes() const override;

  std::unique_ptr<Weight> create_weight(const void* values, DataType type, int64_t rows, int64_t columns) override;
  using CacheOperations::create_pool;
  std::unique_ptr<Pool> create_pool(const PoolMap& map) override;
  std::unique_ptr<CompiledFlow> compile(const Plan& plan, int layers, int kv_heads) override;
  void compile_ahead(std::span<const Plan> plans) override;

  void reserve(const Limits& limits) override;
  void begin_pass(const PassBatch& batch, Pool& pool) override;
  void end_pass() noexcept override;

  std::unique_ptr<Repetition> create_repetition() override;
  void repeat(Repetition* repetition, std::span<const int32_t> tokens, std::span<const CompiledFlow* const> flows,
              const std::function<void()>& operations) override;
  std::unique_ptr<Picks> create_picks(int rows) override;
  void embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) override;
  void rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) override;
  void add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) override;
  void matmul(Matrix x, const Weight& weight, Matrix out) override;
  void silu_multiply(Matrix gate_up, Matrix out) override;
  void gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out) override;
  void gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) override;
  void squared_distances(Matrix a, Matrix b, int parts, std::span<float> out) override;
  void rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain, float epsilon,
                   const Rope& rope) override;
  void append(int layer, Matrix keys, Matrix values) override;
  void copy_shifted(Pool& pool, GroupLayers of, std::span<const ShiftedRun> runs, const Rope& rope) override;
  void evict(const CompiledFlow& flow) override;
  void refresh_fields(int layer, const CompiledFlow& flow) override;
  void refresh_pages(Pool& pool, int layer, const StalePages& stale, const CompiledFlow& flow) override;
  void attention(const Attention& call, Matrix q, Matrix out) override;
  int add_row_masses(const RowMasses& call, Matrix q, Matrix masses) override;
  void sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) override;
  void sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) override;
  void find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks) override;
  void pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks) override;
  void take(Picks& picks, std::span<Sampled> out) override;

  size_t run_first(std::span<const LayerPart> parts, const Activations& rows) override;

 private:
  struct DestroyStream {
    void operator()(CUstream_st* stream) const;
  };
  /// An MLP and the norm behind it, if `parts` begin with that and it pays to do them as one: how many they are, or 0.
  size_t run_mlp(std::span<const LayerPart> parts, const Activations& rows);
  /// Whether a pass runs whose arrays are in one of two halves: what its operations leave by half has a place then.
  bool is_in_pass() const { return pass_.active() && pass_.uploaded(); }
  /// `indices`, and `others` behind them, in device memory until the next call.
  const int32_t* send(std::span<const int32_t> indices, std::span<const int32_t> others = {});
  /// A model's rotary frequencies, which stay where they are.
  const float* frequencies_of(const Rope& rope, int head_dim);
  /// Differs once scratch that operations (of `flows`) use has moved, or they are launched in another way.
  std::vector<uintptr_t> ground(std::span<const RegisteredFlow* const> flows) const;
  /// Of a sequence of the pass. Throws InternalError if there is none.
  const CudaFlowState& state_of(const CudaFlow& flow, int sequence) const;
  /// Throws InternalError unless states of `flow` are there for sequences [first, last), with room for what a group keeps of
  /// them.
  void check_flow_sequences(const CudaFlow& flow, int group, int first, int last) const;
  /// A bound on the pages of any sequence of the pass that decodes. It grows in steps, for steps that are repeated; others have
  /// the same one, so that they take the same kernels.
  int bound_on_pages() const;
  /// Whether the sequences of the pass that decode are, on average, nearly as long as the longest of them, and at most
  /// kMostLists: steps that are repeated are known by one answer, which must hold for every launch of theirs.
  bool decodes_evenly() const;
  /// `matrix` if it is bf16 without gaps, else a matrix of that kind in
  /// `spare`.
  static Matrix plain(const Matrix& matrix, DeviceMemory& spare);
  /// Sequences [first, last): all decode steps, or all prefill. q and out are
  /// bf16 without gaps.
  void attend_decode(const Attention& call, const Matrix& q, const Matrix& out, int first, int last);
  /// The same for decode steps of sparse layers: at most kMostLists. `query` is q as it was given.
  void attend_flow(const Attention& call, const RegisteredFlow& flow, const Matrix& query, const Matrix& q, const Matrix& out,
                   int first, int last);
  /// All pages of sequences from `first` on that a layer's group keeps.
  PageLists all_pages(int layer, int first);
  /// Attends over lists of pages, of sequences from `first` on; sums (may be null) and logits as DecodeAttention::run gives them.
  void attend_lists(const Attention& call, const DecodeShape& shape, const PageLists& lists, const Matrix& q, const Matrix& out,
                    int first, float* sums, const TokenLogits& logits = {});
  /// The same under a cover.
  void attend_under(const Attention& call, const DecodeShape& shape, const Cover& cover, const Matrix& q, const Matrix& out,
                    int first);
  /// Memory for calls of one attention with a layer's pages, whose counters are zero.
  void* decode_workspace(const DecodeAttention& attention, const DecodeShape& shape) const;
  /// Room for outputs that nobody reads, of as many rows as q.
  Matrix probe_output(const Matrix& q);
  /// What a sparse row's probe says, from what the GPU holds. Waits for it.
  void report_flow(const Attention& call, const Plan& plan, const FlowResult& result, const DecodeShape& shape, const Matrix& q,
                   int first);
  /// The tokens selected of a row whose pages at `positions` have any: a bit each.
  void report_tokens(const FlowResult& result, int64_t row, std::span<const int32_t> positions, int page,
                     std::span<uint32_t> tokens);
  /// Layers of one group, at most as many as travel with a launch.
  void evict_layers(const RegisteredFlow& registered, std::span<const int> layers);
  /// Adds up what rows of prompts give their tokens, where the flow reads that, and runs its after stage for prompts whose last
  /// row the pass has. `query` is q as it was given.
  void end_prompts(const Attention& call, const RegisteredFlow& flow, const Matrix& query, const Matrix& q);
  void sum_prompt_masses(const Attention& call, const CudaFlow& flow, const Matrix& q, int sequence, int end);
  void end_prompt(const Attention& call, const RegisteredFlow& flow, const Matrix& query, int sequence);
  /// Leaves an after stage of a prompt the pages that its last row sees, with their masses.
  void show_pages(int group, int sequence, const Plan& plan, FlowSequences& sequences, TokenMasses& masses);
  void attend_prefill(const Attention& call, const Matrix& q, const Matrix& out, int first, int last);
  /// The most tokens of a group that rows of a sequence of [first, end) may see.
  int most_seen(int group, int first, int end) const;
  /// What PrefillTables::lists says of sequences from `first` on: made once a pass for all layers of a group, unless they are
  /// widened in several rounds.
  const int32_t* tile_lists(const PrefillAttention& attention, const PrefillShape& shape, const PrefillTables& tables, int group,
                            int first);
  /// What a dense row's probe says: all pages, with all of the mass.
  void report_dense(const Attention& call, int sequence) const;
  void reserve_decode(const DecodeAttention& attention, int group);
  void reserve_picks(int rows);
  /// For what the stream has been given, whatever goes on beside it.
  void wait();
  /// Does what `refresh_fields` has left to the selection.
  void refresh_now();

  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  SideStream beside_;       // of after stages that nothing in a pass waits for
  SideStream making_room_;  // of evictions, until rows come
  LayerStream copying_;     // of tokens whose text stands elsewhere, behind the first layer
  Gang gang_;
  DeviceInfo info_;
  BatchUpload pass_;
  Matmul matmul_;
  LayerChain layer_chain_;
  DecodeMlp decode_mlp_;
  Staging indices_;
  Staging runs_;                      // that are copied beside the stream
  std::unique_ptr<CudaPicks> picks_;  // of `sample` that waits

  std::map<std::tuple<int, float, std::vector<float>>, DeviceMemory> frequencies_;  // by head dimension, theta, what was given

  DeviceMemory plain_q_, plain_out_;
  std::shared_ptr<std::vector<CudaFlow*>> flows_ = std::make_shared<std::vector<CudaFlow*>>();  // that are alive
  struct Refresh {
    CudaFlow* flow = nullptr;
    int layer = 0;
  };
  Refresh left_to_selection_;  // of the newest pages, in a pass of decode steps alone
  // By a kernel of this pass of its own, with nothing queued for the flow since. That kernel lets others start once it has waited
  // itself, so whatever was queued before it, q too, is there for all that follow, even before they wait; all they may not read
  // is what it writes, of which decode rows have their newest pages.
  Refresh refreshed_;
  Limits limits_;
  DeviceMemory probe_out_, probe_sums_;
  DeviceMemory prefill_workspace_;
  struct TileLists {
    struct Key {
      uint64_t pass = 0;  // none
      int first = 0, sequences = 0, group = 0, dim = 0;
      bool operator==(const Key&) const = default;
    };
    Key key;
    DeviceMemory lists;
  };
  std::vector<TileLists> tile_lists_;  // by group of the pool
  uint64_t passes_ = 0;                // that have begun
  DeviceMemory decode_workspace_;      // counters of up to kMostLists lists, then
                                       // partial results
  size_t decode_counters_ = 0;         // bytes of the former
};

}  // namespace sluice::cuda
