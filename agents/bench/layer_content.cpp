#include "agents/bench/layer_content.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/device/random.h"

namespace sluice {
namespace {

constexpr float kSharpness = 4;  // of queries: softmax gives some tokens more than others

enum class Draw : uint64_t { kKey = 1, kValue, kQuery, kNewValue };

/// `dim` multiples of 1/64 in [-1, 1).
void draw(Draw what, int layer, int64_t place, int head, int dim, float* to) {
  const uint64_t stream = mix64(static_cast<uint64_t>(what) << 32 | static_cast<uint32_t>(layer));
  const uint64_t key = mix64(stream + static_cast<uint64_t>(place * 1024 + head));
  for (int d = 0; d < dim; d += 8) {
    const uint64_t bits = mix64(key + (d + 1) * 0x9e3779b97f4a7c15ULL);
    for (int i = 0; i < 8; ++i) to[d + i] = static_cast<float>(static_cast<int8_t>(bits >> 8 * i) >> 1) / 64;
  }
}

Draw old_tokens(Content content) { return content == Content::kKey ? Draw::kKey : Draw::kValue; }

}  // namespace

std::string LayerShape::text(DataType kv) const {
  return fmt::format("batch {}, tokens {}, kv_heads {}, group {}, dim {}, {}", sequences, tokens, kv_heads, group, dim,
                     name_of(kv));
}

int shift_of(const LayerShape& shape, int sequence) {
  return shape.tokens / shape.sequences / kLargestPage * kLargestPage * sequence;
}

std::vector<float> common_content(const LayerShape& shape, Content content, int first, int tokens) {
  std::vector<float> numbers(static_cast<size_t>(shape.layers) * tokens * shape.kv_heads * shape.dim);
  float* to = numbers.data();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int token = first; token < first + tokens; ++token) {
      for (int head = 0; head < shape.kv_heads; ++head, to += shape.dim) {
        draw(old_tokens(content), layer, token, head, shape.dim, to);
      }
    }
  }
  return numbers;
}

std::vector<float> new_content(const LayerShape& shape, Content content, int sequence, int kv_head) {
  std::vector<float> numbers(shape.dim);
  if (content == Content::kKey) {
    draw(Draw::kQuery, 0, sequence, kv_head * shape.group + sequence % shape.group, shape.dim, numbers.data());
  } else {
    draw(Draw::kNewValue, 0, sequence, kv_head, shape.dim, numbers.data());
  }
  return numbers;
}

std::vector<float> row_content(const LayerShape& shape, Content content, int layer, int sequence, int kv_head) {
  std::vector<float> numbers(static_cast<size_t>(shape.tokens) * shape.dim);
  for (int token = 0; token < shape.tokens; ++token) {
    draw(old_tokens(content), layer, (token + shift_of(shape, sequence)) % shape.tokens, kv_head, shape.dim,
         numbers.data() + static_cast<size_t>(token) * shape.dim);
  }
  const std::vector<float> last = new_content(shape, content, sequence, kv_head);
  std::copy(last.begin(), last.end(), numbers.end() - shape.dim);
  return numbers;
}

std::vector<float> queries_of(const LayerShape& shape, int64_t set, int sequence) {
  std::vector<float> queries(static_cast<size_t>(shape.query_heads()) * shape.dim);
  float* to = queries.data();
  for (int head = 0; head < shape.query_heads(); ++head, to += shape.dim) {
    draw(Draw::kQuery, static_cast<int>(set), sequence, head, shape.dim, to);
  }
  for (float& number : queries) number *= kSharpness;
  return queries;
}

}  // namespace sluice
