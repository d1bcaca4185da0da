#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace sluice::testing {

void write_text(const std::string& path, const std::string& text);

/// A small transformer with random weights, kept both as a Hugging Face directory and as plain numbers.
struct TinyModel {
  std::string architecture = "Qwen3ForCausalLM";
  int layers = 2;
  int hidden = 48;
  int query_heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int intermediate = 96;
  int vocabulary = 160;
  int max_positions = 4096;
  bool tied = true;
  double theta = 10000;
  std::map<int, int> windows;  // by layer: tokens back that a row sees, its own included; others see all
  /// If there is one: whether a row at a position sees a token in a layer, with the queries of a KV head.
  std::function<bool(int layer, int kv_head, int position, int seen)> sees;
  std::string rope_extra;  // more keys of config.json, with a comma in front
  unsigned seed = 1;

  std::map<std::string, std::vector<float>> weights;

  bool qk_norm() const { return architecture == "Qwen3ForCausalLM"; }
  /// Draws the weights, rounded to bf16 so that every device sees the same numbers.
  void draw();
  /// Writes config.json and model.safetensors.
  void write(const std::string& directory) const;
  std::string config_json() const;
  /// Logits [tokens, vocabulary] in float64, one token after the other, written from the definition. `frequencies` are the
  /// rotary frequencies [head_dim / 2]; empty: theta^(-2i/d).
  std::vector<double> logits(const std::vector<int>& tokens, std::vector<double> frequencies = {}) const;
};

}  // namespace sluice::testing
