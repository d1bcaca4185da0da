#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/transformer/model.h"
#include "host/weights/checkpoint.h"
#include "kernels/cpu/runtime/thread_pool.h"
#include "kernels/device.h"

namespace sluice {

/// Where a model takes its weights from.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Stacks the tensors `names`, each [rows_i, columns], into one weight [sum of rows_i, columns], so that one product
  /// computes them all.
  virtual std::unique_ptr<Weight> matrix(const std::vector<std::string>& names, const std::vector<int64_t>& rows,
                                         int64_t columns) = 0;
  std::unique_ptr<Weight> matrix(const std::string& name, int64_t rows, int64_t columns) {
    return matrix(std::vector<std::string>{name}, {rows}, columns);
  }
  /// A vector [columns] as a weight [1, columns], in f32.
  virtual std::unique_ptr<Weight> vector(const std::string& name, int64_t columns) = 0;
  /// Marks a tensor that may be there and is not wanted.
  virtual void ignore(const std::string& name) = 0;
  /// Throws InputError naming a tensor that nobody asked for: a model computed without it would be another model.
  virtual void check_all_used(const std::string& architecture) const = 0;
};

/// A decoder-only transformer of `config`'s shape (transformer.cpp).
std::unique_ptr<Model> create_transformer(ModelConfig config, WeightSource& weights);

/// Moves the tensors of a checkpoint to a device and keeps account of those that were used. bf16 stays bf16; f16 and f32 become
/// f32. Whatever a GGUF file holds is rounded to bf16, on all threads. Throws InputError for a missing tensor, a shape that
/// differs, or a type that holds no real numbers.
class WeightLoader final : public WeightSource {
 public:
  WeightLoader(const Checkpoint& checkpoint, Device& device) : checkpoint_(checkpoint), device_(device) {}

  std::unique_ptr<Weight> matrix(const std::vector<std::string>& names, const std::vector<int64_t>& rows,
                                 int64_t columns) override;
  std::unique_ptr<Weight> vector(const std::string& name, int64_t columns) override;
  void ignore(const std::string& name) override { used_.insert(name); }
  void check_all_used(const std::string& architecture) const override;

 private:
  const StoredTensor& take(const std::string& name, const std::vector<int64_t>& shape);
  void round(const StoredTensor& tensor, uint16_t* values);

  const Checkpoint& checkpoint_;
  Device& device_;
  std::optional<cpu::ThreadPool> threads_;  // once something is rounded
  std::set<std::string> used_;
};

}  // namespace sluice
