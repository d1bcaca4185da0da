#include "tests/host/transformer/tiny_model.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <stdexcept>

#include "host/weights/half.h"
#include "host/weights/safetensors_writer.h"
#include "kernels/cpu/simd/bfloat16.h"

namespace sluice::testing {
namespace {

using Vector = std::vector<double>;

// [rows, columns] row-major times x.
Vector multiply(const std::vector<float>& weight, const Vector& x) {
  const size_t columns = x.size();
  Vector out(weight.size() / columns, 0.0);
  for (size_t r = 0; r < out.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) out[r] += static_cast<double>(weight[r * columns + c]) * x[c];
  }
  return out;
}

Vector rms_norm(const Vector& x, const std::vector<float>& gain) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-6);
  Vector out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * scale * gain[i]);
  return out;
}

Vector slice(const Vector& x, size_t index, size_t size) {
  const auto first = x.begin() + static_cast<ptrdiff_t>(index * size);
  return {first, first + static_cast<ptrdiff_t>(size)};
}

// Rotates the pairs (i, i + d/2).
Vector rotate(const Vector& x, int position, const Vector& frequencies) {
  const size_t half = x.size() / 2;
  Vector out(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * frequencies[i];
    out[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    out[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return out;
}

void add(Vector& x, const Vector& delta) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
}

}  // namespace

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text)) throw std::runtime_error("cannot write " + path);
}

void TinyModel::draw() {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](const std::string& name, size_t count, float centre, float scale) {
    std::vector<float>& values = weights[name];
    for (size_t i = 0; i < count; ++i) values.push_back(float_from_bf16(cpu::round_to_bf16(centre + scale * normal(generator))));
  };
  const auto matrix = [&](const std::string& name, int rows, int columns) {
    fill(name, static_cast<size_t>(rows) * static_cast<size_t>(columns), 0, 1.5F / std::sqrt(static_cast<float>(columns)));
  };
  const auto gain = [&](const std::string& name, int columns) { fill(name, static_cast<size_t>(columns), 1, 0.2F); };
  matrix("model.embed_tokens.weight", vocabulary, hidden);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    gain(prefix + "input_layernorm.weight", hidden);
    matrix(prefix + "self_attn.q_proj.weight", query_heads * head_dim, hidden);
    matrix(prefix + "self_attn.k_proj.weight", kv_heads * head_dim, hidden);
    matrix(prefix + "self_attn.v_proj.weight", kv_heads * head_dim, hidden);
    matrix(prefix + "self_attn.o_proj.weight", hidden, query_heads * head_dim);
    if (qk_norm()) gain(prefix + "self_attn.q_norm.weight", head_dim);
    if (qk_norm()) gain(prefix + "self_attn.k_norm.weight", head_dim);
    gain(prefix + "post_attention_layernorm.weight", hidden);
    matrix(prefix + "mlp.gate_proj.weight", intermediate, hidden);
    matrix(prefix + "mlp.up_proj.weight", intermediate, hidden);
    matrix(prefix + "mlp.down_proj.weight", hidden, intermediate);
  }
  gain("model.norm.weight", hidden);
  if (!tied) matrix("lm_head.weight", vocabulary, hidden);
}

std::string TinyModel::config_json() const {
  return fmt::format(
      R"({{"architectures": ["{}"], "num_hidden_layers": {}, "hidden_size": {}, "num_attention_heads": {}, "num_key_value_heads": {},
      "head_dim": {}, "intermediate_size": {}, "vocab_size": {}, "max_position_embeddings": {}, "rms_norm_eps": 1e-6,
      "rope_theta": {}, "tie_word_embeddings": {}, "eos_token_id": 0{}}})",
      architecture, layers, hidden, query_heads, kv_heads, head_dim, intermediate, vocabulary, max_positions, theta, tied,
      rope_extra);
}

void TinyModel::write(const std::string& directory) const {
  write_text(directory + "/config.json", config_json());
  SafetensorsWriter writer;
  for (const auto& [name, values] : weights) {
    const auto count = static_cast<int64_t>(values.size());
    int64_t columns = count;
    if (name.find("norm") == std::string::npos) {
      columns = name.find("o_proj") != std::string::npos      ? query_heads * head_dim
                : name.find("down_proj") != std::string::npos ? intermediate
                                                              : hidden;
    }
    const auto shape = columns == count ? std::vector<int64_t>{count} : std::vector<int64_t>{count / columns, columns};
    writer.add(name, shape, std::span<const float>(values));
  }
  writer.write(directory + "/model.safetensors");
}

std::vector<double> TinyModel::logits(const std::vector<int>& tokens, std::vector<double> frequencies) const {
  const auto dim = static_cast<size_t>(head_dim);
  for (size_t i = frequencies.size(); i < dim / 2; ++i)
    frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / head_dim));
  const auto at = [&](const std::string& name) -> const std::vector<float>& { return weights.at(name); };
  // keys[layer][head] holds one vector for every token so far.
  std::vector<std::vector<std::vector<Vector>>> keys(static_cast<size_t>(layers),
                                                     std::vector<std::vector<Vector>>(static_cast<size_t>(kv_heads)));
  auto values = keys;
  std::vector<double> all;
  for (size_t position = 0; position < tokens.size(); ++position) {
    const auto place = static_cast<int>(position);
    const std::vector<float>& table = at("model.embed_tokens.weight");
    const auto row = table.begin() + ptrdiff_t{tokens[position]} * hidden;
    Vector x(row, row + hidden);
    for (size_t layer = 0; layer < keys.size(); ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      const std::string attention = prefix + "self_attn.";
      Vector normed = rms_norm(x, at(prefix + "input_layernorm.weight"));
      const Vector q = multiply(at(attention + "q_proj.weight"), normed);
      const Vector k = multiply(at(attention + "k_proj.weight"), normed);
      const Vector v = multiply(at(attention + "v_proj.weight"), normed);
      for (size_t head = 0; head < static_cast<size_t>(kv_heads); ++head) {
        Vector key = slice(k, head, dim);
        if (qk_norm()) key = rms_norm(key, at(attention + "k_norm.weight"));
        keys[layer][head].push_back(rotate(key, place, frequencies));
        values[layer][head].push_back(slice(v, head, dim));
      }
      Vector attended;
      for (size_t head = 0; head < static_cast<size_t>(query_heads); ++head) {
        Vector query = slice(q, head, dim);
        if (qk_norm()) query = rms_norm(query, at(attention + "q_norm.weight"));
        query = rotate(query, place, frequencies);
        const size_t owner = head / static_cast<size_t>(query_heads / kv_heads);
        Vector out(dim, 0.0);
        double total = 0;
        const auto window = windows.find(static_cast<int>(layer));
        const size_t first = window == windows.end() ? 0 : static_cast<size_t>(std::max(0, place - window->second + 1));
        for (size_t seen = first; seen <= position; ++seen) {
          if (sees && !sees(static_cast<int>(layer), static_cast<int>(owner), place, static_cast<int>(seen))) continue;
          double dot = 0;
          for (size_t i = 0; i < dim; ++i) dot += query[i] * keys[layer][owner][seen][i];
          const double share = std::exp(dot / std::sqrt(static_cast<double>(dim)));
          total += share;
          for (size_t i = 0; i < dim; ++i) out[i] += share * values[layer][owner][seen][i];
        }
        for (const double value : out) attended.push_back(total > 0 ? value / total : 0);
      }
      add(x, multiply(at(attention + "o_proj.weight"), attended));
      normed = rms_norm(x, at(prefix + "post_attention_layernorm.weight"));
      Vector gate = multiply(at(prefix + "mlp.gate_proj.weight"), normed);
      const Vector up = multiply(at(prefix + "mlp.up_proj.weight"), normed);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(x, multiply(at(prefix + "mlp.down_proj.weight"), gate));
    }
    const Vector out = multiply(at(tied ? "model.embed_tokens.weight" : "lm_head.weight"), rms_norm(x, at("model.norm.weight")));
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

}  // namespace sluice::testing
