#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "scripting/graph/plan.h"

namespace sluice {

/// A dense row-major matrix in a device's memory. Activations have the device's own type (float32 on the CPU,
/// bf16 on CUDA).
struct Matrix {
  void* data = nullptr;
  DataType type = DataType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // elements from row to row

  float* f32() const { return static_cast<float*>(data); }
  float* row(int64_t index) const { return f32() + index * stride; }
  /// Rows [first, first + count).
  Matrix slice_rows(int64_t first, int64_t count) const;
  /// Columns [first, first + count).
  Matrix slice_columns(int64_t first, int64_t count) const;
};

/// Memory of a device; freed with this object.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

/// A weight as the device wants it (packed, converted). Made by `Device::create_weight`.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int64_t rows() const = 0;     // outputs (or vocabulary)
  virtual int64_t columns() const = 0;  // inputs
  virtual size_t bytes() const = 0;
};

/// All pages of one engine: [layer, page, kv_head] blocks of `PageLayout::bytes`.
class Pool {
 public:
  virtual ~Pool() = default;
  virtual const PageLayout& layout() const = 0;
  virtual int layers() const = 0;
  virtual int pages() const = 0;
  virtual int kv_heads() const = 0;
  virtual size_t bytes() const = 0;
  /// Copies page sources[i] over page targets[i] in every layer and head (copy on write of shared pages). All at once: no page
  /// may be a target twice, or a target and the source of another.
  virtual void copy_pages(std::span<const int32_t> sources, std::span<const int32_t> targets) = 0;
  void copy_page(int32_t source, int32_t target) { copy_pages({&source, 1}, {&target, 1}); }
  /// Copies the first `tokens` tokens of K and V of the pages into `keys`, `values`: float32 [layers, tokens, kv_heads, dim].
  virtual void read(std::span<const int32_t> pages, int tokens, float* keys, float* values) const = 0;
  /// The inverse of `read`: stores the first `tokens` tokens of K and V, rounded to the pool's type. Cached fields are
  /// untouched: `Device::refresh_pages` recomputes them.
  virtual void write(std::span<const int32_t> pages, int tokens, const float* keys, const float* values) = 0;
};

/// What one request keeps between decode steps: the flow's `load`/`save` state, and what may spare a device work in the next
/// step. Made at admission, never in a step.
class RequestState {
 public:
  virtual ~RequestState() = default;
  virtual size_t bytes() const = 0;
  /// Back to the initial values.
  virtual void reset() = 0;
};

/// Pages of one KV head in one layer, summed over decode rows since a flow was compiled.
struct FlowCounters {
  uint64_t pages_attended = 0;
  uint64_t pages_available = 0;  // what dense attention would have read
};

/// A plan made ready for a device, for a model's layers and KV heads.
class CompiledFlow {
 public:
  virtual ~CompiledFlow() = default;
  virtual const Plan& plan() const = 0;
  /// State for one request of at most `max_pages` pages; null if nothing is kept.
  virtual std::unique_ptr<RequestState> create_state(int max_pages) const = 0;
  /// Waits for what the device has been told to do.
  virtual FlowCounters counters() const = 0;
};

/// The sequences of one forward pass. Spans lie in host memory and stay valid until the pass ends.
struct PassBatch {
  std::span<const int32_t> query_indptr;  // [sequences + 1] rows of the token matrix
  std::span<const int32_t> lengths;       // [sequences] tokens in the cache once this pass's are appended
  std::span<const int32_t> page_indptr;   // [sequences + 1]
  std::span<const int32_t> page_indices;  // [page_indptr.back()] pages, oldest first
  std::span<const uint8_t> decoding;      // [sequences] 1: a decode step (one row; sparse layers run the flow); 0: prefill, dense
  std::span<const uint64_t> seeds;        // [sequences] the request's seed for kRandom and kApproxTopK
  std::span<RequestState* const> states;  // [sequences] may hold nulls

  int sequences() const { return static_cast<int>(lengths.size()); }
  int rows() const { return query_indptr.empty() ? 0 : query_indptr.back(); }
  int query_rows(int sequence) const { return query_indptr[sequence + 1] - query_indptr[sequence]; }
  /// The pages that hold the sequence's tokens, `page` in each, oldest first.
  std::span<const int32_t> pages(int sequence, int page) const {
    return page_indices.subspan(page_indptr[sequence], (lengths[sequence] + page - 1) / page);
  }
};

/// What an attention call reports beyond its output. Every pointer may be null. Only decode rows are reported.
struct AttentionProbe {
  /// [sequences, kv_heads, scored_selections(graph), score_capacity] what each of them ranks pages by, before pages are forced
  float* scores = nullptr;
  int32_t* selected = nullptr;  // [sequences, kv_heads, selected_capacity] ascending, padded with -1
  int32_t* counts = nullptr;    // [sequences, kv_heads] pages selected
  float* mass = nullptr;  // [sequences, kv_heads] share of the dense attention mass on the selected pages (mean of the heads);
                          // costs a dense pass
  int score_capacity = 0;
  int selected_capacity = 0;
};

/// How one token is picked from a row of logits.
struct SampleRow {
  int64_t row = 0;        // of the logits
  float temperature = 0;  // 0: greedy
  int top_k = 0;          // 0: all
  float top_p = 1;
  double uniform = 0;  // [0, 1): the number drawn

  bool greedy() const { return temperature <= 0; }
};

struct Sampled {
  int32_t token = 0;
  bool sound = false;  // every logit is finite or -inf, and at least one is finite
};

struct DeviceInfo {
  std::string name;         // "cpu", "cuda"
  std::string description;  // "AVX3, 2 threads"
  DataType activation = DataType::kF32;
  int threads = 1;
  int most_group = 16;  // query heads that may share a KV head
  /// Operations return before they are done, so that the host has time to prepare the next pass.
  bool works_beside_host = false;
};

/// A device: memory, the operations of a model, and flows. Not thread-safe: one engine thread owns it. Operations of a
/// pass may be asynchronous; `read` and `synchronize` wait. Shapes are checked at entry: InternalError names the
/// dimension that disagrees. No call between `begin_pass` and `end_pass` allocates once `reserve` has been called,
/// after flows were compiled.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  virtual void write(void* target, const void* host_source, size_t bytes) = 0;
  virtual void read(void* host_target, const void* source, size_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Bytes of the device's memory that neither this process nor another has taken.
  virtual size_t free_bytes() const = 0;

  /// `values` is [rows, columns] row-major, of `type` (f32 or bf16), in host memory. The device may keep bf16 as it is, widen
  /// it, or round f32 to it.
  virtual std::unique_ptr<Weight> create_weight(const void* values, DataType type, int64_t rows, int64_t columns) = 0;
  virtual std::unique_ptr<Pool> create_pool(int layers, int kv_heads, int pages, const PageLayout& layout) = 0;
  /// Throws FlowError if the device has no way to run the plan.
  virtual std::unique_ptr<CompiledFlow> compile(const Plan& plan, int layers, int kv_heads) = 0;

  /// Sizes scratch memory for passes of up to these extents, so that steps need no allocation.
  struct Limits {
    int rows = 0;
    int sequences = 0;
    int pages_per_sequence = 0;
    int query_heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int page = 128;      // tokens in a page; the largest, if it is not known
    int vocabulary = 0;  // columns of the logits that are sampled from, for up to `sequences` rows at a time
  };
  /// Throws InputError for heads that the device cannot attend.
  virtual void reserve(const Limits& limits) = 0;

  virtual void begin_pass(const PassBatch& batch, Pool& pool) = 0;
  virtual void end_pass() noexcept = 0;

  /// What a device remembers of operations that are the same in every decode step of one engine. Null: nothing.
  class Repetition {
   public:
    virtual ~Repetition() = default;
  };
  virtual std::unique_ptr<Repetition> create_repetition() { return nullptr; }
  /// Runs `operations` of a pass, or replays what they did in an earlier pass with as many sequences. They embed `tokens` [rows],
  /// run `flow` (null: none), and must not wait, report to probes, or read rows by number (`gather_rows`); pool, matrices,
  /// weights, picks and flow are the same in all passes with one `repetition`. Passes with prefill are not replayed.
  virtual void repeat(Repetition* repetition, std::span<const int32_t> tokens, const CompiledFlow* flow,
                      const std::function<void()>& operations);

  /// What was picked from the logits of one engine's passes, which later passes may embed before the host knows it.
  class Picks {
   public:
    explicit Picks(int most_rows) : most_rows_(most_rows) {}
    virtual ~Picks() = default;
    Picks(const Picks&) = delete;
    Picks& operator=(const Picks&) = delete;

    int most_rows() const { return most_rows_; }
    /// Rows of the last call of `sample` or `pick_best`.
    int rows() const { return begun_ == 0 ? 0 : rows_[(begun_ - 1) % 2]; }
    /// For devices: where a call of `sample` or `take` with so many rows finds its place for results, 0 or 1. Throws
    /// InternalError if there is none.
    int begin(size_t rows);
    int take(size_t rows);

   private:
    int most_rows_;
    std::array<int, 2> rows_ = {};
    uint64_t begun_ = 0;  // calls
    uint64_t taken_ = 0;
  };
  /// For up to `rows` rows at a time.
  virtual std::unique_ptr<Picks> create_picks(int rows) = 0;

  /// out[i] = table[tokens[i]]; tokens in host memory. A token -1 - i is what row i of the last `sample` into `picks` (may be
  /// null where there is none such) gave.
  virtual void embed(const Weight& table, std::span<const int32_t> tokens, const Picks* picks, Matrix out) = 0;
  /// out = x / sqrt(mean(x^2) + epsilon) * gain, by rows; gain is [1, columns].
  virtual void rms_norm(Matrix x, const Weight& gain, float epsilon, Matrix out) = 0;
  /// residual += delta; out = rms_norm(residual).
  virtual void add_rms_norm(Matrix residual, Matrix delta, const Weight& gain, float epsilon, Matrix out) = 0;
  /// out[rows, weight.rows] = x[rows, weight.columns] * weight^T.
  virtual void matmul(Matrix x, const Weight& weight, Matrix out) = 0;
  /// out = silu(gate) * up; gate_up is [rows, 2 * n]: gate, then up.
  virtual void silu_multiply(Matrix gate_up, Matrix out) = 0;
  /// out = silu(gate) * up, where x * weight^T is gate, then up: gate_up [rows, weight.rows], which may be left as it was.
  virtual void gated_matmul(Matrix x, const Weight& weight, Matrix gate_up, Matrix out);
  /// out[i] = x[rows[i]]; `rows` in host memory.
  virtual void gather_rows(Matrix x, std::span<const int32_t> rows, Matrix out) = 0;

  struct Rope {
    float theta = 10000;
    std::vector<float> inverse_frequencies;  // [head_dim / 2]; already scaled (llama3, linear) where a model wants it
    float attention_scale = 1;               // multiplies cos and sin
  };
  /// Normalises q and k per head (gains may be null), rotates them by the position of their token (halves, not pairs) and
  /// appends k and v to the pages of `layer`. qkv is [rows, (query_heads + 2 * kv_heads) * head_dim], q is rotated in place.
  virtual void rope_append(int layer, Matrix qkv, int query_heads, const Weight* query_gain, const Weight* key_gain,
                           float epsilon, const Rope& rope) = 0;
  /// Appends k, v [rows, kv_heads * head_dim] as they are.
  virtual void append(int layer, Matrix keys, Matrix values) = 0;
  /// Recomputes the cached fields of `layer` for the pages that this pass's tokens touched. No-op without fields.
  virtual void refresh_fields(int layer, const CompiledFlow& flow) = 0;
  /// The same for given pages, outside a pass: all are full but the last, which holds `last_tokens` (1..page).
  virtual void refresh_pages(Pool& pool, int layer, std::span<const int32_t> pages, int last_tokens,
                             const CompiledFlow& flow) = 0;

  struct Attention {
    int layer = 0;
    int query_heads = 0;
    float scale = 1;                     // of q . k, usually 1/sqrt(head_dim)
    const CompiledFlow* flow = nullptr;  // for decode rows; null: dense
    AttentionProbe* probe = nullptr;
  };
  /// q, out: [rows, query_heads * head_dim]. Row i of a sequence sees its tokens up to itself.
  virtual void attention(const Attention& call, Matrix q, Matrix out) = 0;

  /// The weights of a transformer's layer behind its attention, and those that the next layer begins with (null: it is the last).
  struct LayerTail {
    const Weight* output = nullptr;     // [hidden, query_heads * head_dim]
    const Weight* mlp_gain = nullptr;   // [1, hidden]
    const Weight* gate_up = nullptr;    // [2 * intermediate, hidden]
    const Weight* down = nullptr;       // [hidden, intermediate]
    const Weight* next_gain = nullptr;  // [1, hidden]
    const Weight* next_qkv = nullptr;   // [(query_heads + 2 * kv_heads) * head_dim, hidden]
    float epsilon = 0;                  // of both norms
  };
  /// Matrices of as many rows, and columns as the weights have them.
  struct TailRows {
    Matrix attended;   // what attention gave
    Matrix residual;   // float32
    Matrix delta;      // what is still to be added to the residual, of the last layer; else scratch
    Matrix normed;     // scratch
    Matrix gate_up;    // scratch
    Matrix activated;  // scratch
    Matrix qkv;        // of the next layer
  };
  /// residual += attended * output^T; then delta = silu(gate) * up * down^T of the normed residual. If there is a next layer:
  /// residual += delta; qkv = normed residual * next_qkv^T. A device may do all of this in fewer steps than the operations above;
  /// sums are then rounded less often.
  /// Throws InternalError for sizes that do not fit each other.
  virtual void finish_layer(const LayerTail& tail, const TailRows& rows);
  /// Whether `finish_layer` does so for these.
  virtual bool joins_layer(const LayerTail& tail, const TailRows& rows) const;
  /// What `finish_layer` does with `normed` rows of a layer that is not the last, up to the next layer's: residual += silu(gate)
  /// * up * down^T; normed = rms_norm(residual) with the next gain. It, too, may be done in fewer steps, and sums are then
  /// rounded less often. Throws InternalError for sizes that do not fit each other, and for the last layer.
  virtual void add_mlp_norm(const LayerTail& tail, const TailRows& rows);
  /// Whether `add_mlp_norm` does so for these.
  virtual bool joins_mlp(const LayerTail& tail, const TailRows& rows) const;

  /// Picks out[i] from row rows[i].row of `logits` (float32). Greedy: the largest logit, the lowest id of equals. Otherwise
  /// logits are divided by the temperature, cut to the `top_k` largest, then to the fewest whose share reaches `top_p`; of these,
  /// the most likely first and the lowest id of equals, it is the first with which their shares add up to more than `uniform`.
  /// NaN counts as -inf; if no logit is finite or +inf the token is 0, and if any is +inf it is the first of those. Waits for the
  /// result.
  virtual void sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) = 0;
  /// The same, without waiting, for at most as many rows as `picks` has room for. At most two calls may be ahead of `take`.
  virtual void sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) = 0;
  /// logits = x * head^T, for `pick_best` with these `picks` and nothing else: a device may leave them as they were. `head`, and
  /// how rows lie in memory, are the same in all calls with one `picks`.
  virtual void find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks);
  /// `sample` for rows that are all greedy, of the logits that the last `find_best` with `picks` was given.
  virtual void pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks);
  /// Waits for the earliest results of `sample` or `pick_best` into `picks` that have not been taken, which are as many as `out`.
  virtual void take(Picks& picks, std::span<Sampled> out) = 0;
};

struct CpuOptions {
  int threads = 0;    // 0: all cores that this process may use
  bool tiles = true;  // AMX, where the processor has it, for prefill and products with bf16 weights; false: vectors everywhere
};
std::unique_ptr<Device> create_cpu_device(const CpuOptions& options = {});

/// "cpu" or "cuda". Throws InputError for a device that this build or machine does not have, naming what is missing.
std::unique_ptr<Device> create_device(const std::string& name, int threads = 0);
/// Throws InputError as create_device does for a device that is not there, without making one.
void require_device(const std::string& name);
/// Throws InputError for a name that create_device does not know.
void require_device_name(const std::string& name);

/// The GPUs that this process sees, each as CUDA_VISIBLE_DEVICES has to name it for a process that is to see no other.
std::vector<std::string> visible_gpus();

}  // namespace sluice
