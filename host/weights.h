#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "host/safetensors.h"
#include "kernels/device.h"

namespace sluice {

/// Moves the tensors of a checkpoint to a device and keeps account of those that were used.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, Device& device) : checkpoint_(checkpoint), device_(device) {}

  /// Stacks the tensors `names`, each [rows_i, columns], into one weight [sum of rows_i, columns], so that one product
  /// computes them all. bf16 stays bf16; f16 and f32 become f32. Throws InputError for a missing tensor, a shape that
  /// differs, or a type that holds no real numbers.
  std::unique_ptr<Weight> matrix(const std::vector<std::string>& names, const std::vector<int64_t>& rows, int64_t columns);
  std::unique_ptr<Weight> matrix(const std::string& name, int64_t rows, int64_t columns);
  /// A vector [columns] as a weight [1, columns], in f32.
  std::unique_ptr<Weight> vector(const std::string& name, int64_t columns);

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  /// Marks a tensor that may be there and is not wanted.
  void ignore(const std::string& name) { used_.insert(name); }
  /// Throws InputError naming a tensor that nobody asked for: a model computed without it would be another model.
  void check_all_used(const std::string& architecture) const;

 private:
  const StoredTensor& take(const std::string& name, const std::vector<int64_t>& shape);

  const Checkpoint& checkpoint_;
  Device& device_;
  std::set<std::string> used_;
};

}  // namespace sluice
