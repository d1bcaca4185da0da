#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device/layer_program.h"
#include "kernels/device/matrix.h"
#include "kernels/device/operation_observer.h"
#include "kernels/device/picks.h"

namespace sluice {

/// What a model needs of a device besides its cache: weights, products, norms, embeddings, and picking tokens.
class ModelOperations : public virtual ObservedOperations {
 public:
  using Picks = sluice::Picks;

  virtual ~ModelOperations() = default;

  /// `values` is [rows, columns] row-major, of `type` (f32 or bf16), in host memory. The device may keep bf16 as it is, widen
  /// it, or round f32 to it.
  virtual std::unique_ptr<Weight> create_weight(const void* values, DataType type, int64_t rows, int64_t columns) = 0;
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
  /// Sums of (a - b)^2 over each of `parts` equal parts of their rows: out [rows, parts] in host memory, for which this waits.
  virtual void squared_distances(Matrix a, Matrix b, int parts, std::span<float> out) = 0;

  /// Does `parts`, none of which is attention, on `rows`. Neighbours that the device joins are done in fewer steps than the
  /// operations above; sums are then rounded less often, and what only they hand to each other may be left as it was. Throws
  /// InternalError for sizes that do not fit each other.
  void run(std::span<const LayerPart> parts, const Activations& rows);

  /// Picks out[i] from row rows[i].row of `logits` (float32). Greedy: the largest logit, the lowest id of equals. Otherwise
  /// logits are divided by the temperature, cut to the `top_k` largest, then to the fewest whose share reaches `top_p`; of these,
  /// the most likely first and the lowest id of equals, it is the first with which their shares add up to more than `uniform`.
  /// NaN counts as -inf; if no logit is finite or +inf the token is 0, and if any is +inf it is the first of those. A token that
  /// is given is the result, whatever the logits are. Waits for the result. Log-probabilities have no place here.
  virtual void sample(Matrix logits, std::span<const SampleRow> rows, std::span<Sampled> out) = 0;
  /// The same, without waiting, for at most as many rows as `picks` has room for; `picks` also gets the log-probabilities that
  /// rows ask for. At most two calls may be ahead of `take`.
  virtual void sample(Matrix logits, std::span<const SampleRow> rows, Picks& picks) = 0;
  /// logits = x * head^T, for `pick_best` with these `picks` and nothing else: a device may leave them as they were. `head`, and
  /// how rows lie in memory, are the same in all calls with one `picks`.
  virtual void find_best(Matrix x, const Weight& head, Matrix logits, Picks& picks);
  /// `sample` for rows of which only the best token is wanted, of the logits that the last `find_best` with `picks` was given.
  virtual void pick_best(Matrix logits, std::span<const SampleRow> rows, Picks& picks);
  /// Waits for the earliest results of `sample` or `pick_best` into `picks` that have not been taken, which are as many as `out`.
  virtual void take(Picks& picks, std::span<Sampled> out) = 0;

 protected:
  /// Does the first of `parts`, or as many of the first ones as the device joins; returns how many.
  virtual size_t run_first(std::span<const LayerPart> parts, const Activations& rows);
  /// [[nodiscard]] as `operation`: a product by `weight`.
  [[nodiscard]] Operation product(const char* name, const Weight& weight);
};

}  // namespace sluice
