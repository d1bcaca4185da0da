#include "agents/traces/layer_tensors.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "host/weights/safetensors.h"
#include "host/weights/safetensors_writer.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr const char* kLayout = "wanted are k and v [tokens, kv_heads, dim] and q [steps, q_heads, dim], as F32, F16 or BF16";

/// A tensor of rank 3. Throws InputError.
const StoredTensor& tensor_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) throw InputError(fmt::format("{}: there is no tensor {}", file.path(), name), kLayout);
  const StoredType type = tensor->type;
  if (type != StoredType::kF32 && type != StoredType::kF16 && type != StoredType::kBF16) {
    throw InputError(fmt::format("{}: {} is of type {}", file.path(), name, format_of(type).name), kLayout);
  }
  if (tensor->shape.size() != 3) throw InputError(fmt::format("{}: {} is {}", file.path(), name, tensor->shape_text()), kLayout);
  for (const int64_t extent : tensor->shape) {
    if (extent < 1) throw InputError(fmt::format("{}: {} is {}, and so empty", file.path(), name, tensor->shape_text()), kLayout);
    if (extent > std::numeric_limits<int32_t>::max()) {
      throw InputError(fmt::format("{}: {} is {}, too large", file.path(), name, tensor->shape_text()));
    }
  }
  return *tensor;
}

}  // namespace

LayerTensors read_layer_tensors(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const StoredTensor& k = tensor_of(file, "k");
  const StoredTensor& v = tensor_of(file, "v");
  const StoredTensor& q = tensor_of(file, "q");
  if (k.shape != v.shape) {
    throw InputError(fmt::format("{}: k is {} and v is {}", path, k.shape_text(), v.shape_text()),
                     "they must have the same shape");
  }
  if (q.shape[2] != k.shape[2]) {
    throw InputError(
        fmt::format("{}: q is {} and k is {}: their dim, the last axis, differs", path, q.shape_text(), k.shape_text()), kLayout);
  }
  if (q.shape[1] % k.shape[1] != 0) {
    throw InputError(fmt::format("{}: {} query heads cannot share {} KV heads", path, q.shape[1], k.shape[1]),
                     "the number of query heads must be a multiple of the number of KV heads");
  }
  if (q.shape[0] > k.shape[0]) {
    throw InputError(fmt::format("{}: {} steps need as many tokens, and there are {}", path, q.shape[0], k.shape[0]),
                     "step i sees the first tokens - steps + 1 + i tokens");
  }
  const auto extent = [](const StoredTensor& tensor, size_t axis) { return static_cast<int>(tensor.shape[axis]); };
  return {k.to_f32(), v.to_f32(), q.to_f32(), extent(k, 0), extent(k, 1), extent(q, 0), extent(q, 1), extent(k, 2)};
}

void write_layer_tensors(const std::string& path, const LayerTensors& tensors) {
  SafetensorsWriter writer;
  writer.add_bf16("k", {tensors.tokens, tensors.kv_heads, tensors.dim}, tensors.keys);
  writer.add_bf16("v", {tensors.tokens, tensors.kv_heads, tensors.dim}, tensors.values);
  writer.add_bf16("q", {tensors.steps, tensors.query_heads, tensors.dim}, tensors.queries);
  writer.write(path);
}

}  // namespace sluice
