#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace sluice {

/// What `config.json` and `generation_config.json`, or the metadata of a GGUF file, say, in our words.
struct ModelConfig {
  std::string architecture;  // "Qwen3ForCausalLM"
  int layers = 0;
  int hidden = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;
  int vocabulary = 0;
  int max_positions = 0;
  float rms_epsilon = 1e-6f;
  bool tied_embeddings = false;
  bool qk_norm = true;
  Device::Rope rope;
  std::vector<int32_t> end_tokens;
  /// By layer: how many tokens back a token sees, itself included; 0: all. Empty: every layer sees all.
  std::vector<int> windows;

  int window(int layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  bool has_windows() const {
    return std::any_of(windows.begin(), windows.end(), [](int window) { return window > 0; });
  }
  int group() const { return query_heads / kv_heads; }
};

/// A flow's layers without those for which `has_window` holds, which it leaves as they are: they read little already. Throws
/// InputError if it then runs nowhere.
LayerChoice without_windows(const LayerChoice& layers, int count, const std::function<bool(int layer)>& has_window);
LayerChoice without_windows(const LayerChoice& layers, const ModelConfig& config);

/// Reads and checks the configuration of a model: of a directory, config.json and generation_config.json; of a GGUF file, its
/// metadata. Throws InputError naming file, key and value.
ModelConfig load_config(const std::string& model);

/// A model on a device: weights and the order of operations. Immutable once loaded; engines share it.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual size_t weight_bytes() const = 0;
  /// Of these, what a decode step reads: all but a table of embeddings that is not the head as well.
  virtual size_t step_weight_bytes() const = 0;

  /// Scratch of one engine for passes of up to `rows` tokens.
  class Workspace {
   public:
    virtual ~Workspace() = default;
    virtual size_t bytes() const = 0;
  };
  virtual std::unique_ptr<Workspace> create_workspace(Device& device, int rows, int logit_rows) const = 0;

  struct ForwardPass {
    std::span<const int32_t> tokens;             // [rows]; below 0: as Device::embed has them
    const Device::Picks* picks = nullptr;        // that tokens below 0 refer to
    std::span<const int32_t> logit_rows;         // rows whose logits are wanted
    Device::Picks* best = nullptr;               // not null: they are wanted for Device::pick_best with these picks alone
    std::span<const CompiledFlow* const> flows;  // [layers], null where one is dense; empty: all are
    AttentionProbe* probes = nullptr;            // [layers] or null
    /// If not null: host memory that gets what the last row asks attention with, after QK-norm and RoPE:
    /// [layers, query_heads, head_dim].
    float* queries = nullptr;
  };
  /// Runs one pass between the device's begin_pass and end_pass. Returns logits [logit_rows, vocabulary] in the workspace, or
  /// where they were to be (with `best`).
  virtual Matrix forward(Device& device, Workspace& workspace, const ForwardPass& pass) const = 0;

  /// Some layers of one pass: of rows that have come as far as the first of them.
  struct LayerPass {
    int first = 0;  // layers [first, end)
    int end = 0;
    std::span<const int32_t> tokens;  // [rows] that are embedded; only where `from` has no rows
    Matrix from;                      // float32 [.., hidden]: the residual stream before layer `first`, of more rows than these
    std::span<const int32_t> from_rows;  // [rows] of it
    Matrix
        to;  // float32 [rows, hidden]: gets the residual stream before layer `end`, which there must be; no rows: it is not kept
    std::span<const CompiledFlow* const> flows;  // as ForwardPass has them
    bool wants_logits = false;                   // of the last row; with all layers to the last
    /// If not null: layer `end`, which there must be, appends K and V of the rows, and this is called with their queries, after
    /// QK-norm and RoPE: [rows, query_heads * head_dim].
    std::function<void(Matrix queries)> on_queries;
  };
  /// Runs them between the device's begin_pass and end_pass. Returns logits [1, vocabulary] in the workspace, if they are wanted.
  virtual Matrix run_layers(Device& device, Workspace& workspace, const LayerPass& pass) const = 0;
};

/// Loads a Hugging Face directory (config.json, *.safetensors with or without an index) or a GGUF file. Throws InputError.
std::unique_ptr<Model> load_model(const std::string& path, Device& device);

}  // namespace sluice
