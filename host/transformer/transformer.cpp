#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "host/transformer/model.h"
#include "host/transformer/weights.h"
#include "host/weights/half.h"
#include "kernels/device/checks.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Activations of one pass, of the device's own type; the residual stream, to which every layer adds, and the logits, which the
/// host may read, are float32 on every device.
class TransformerWorkspace final : public Model::Workspace {
 public:
  TransformerWorkspace(Device& device, const ModelConfig& config, int row_capacity, int logit_row_capacity)
      : rows(row_capacity), logit_rows(logit_row_capacity) {
    const int64_t dim = config.head_dim;
    const DataType type = device.info().activation;
    activations[Activation::kResidual] = matrix(device, DataType::kF32, rows, config.hidden);
    activations[Activation::kNormed] = matrix(device, type, rows, config.hidden);
    activations[Activation::kDelta] = matrix(device, type, rows, config.hidden);
    activations[Activation::kQkv] = matrix(device, type, rows, (config.query_heads + 2 * config.kv_heads) * dim);
    activations[Activation::kAttended] = matrix(device, type, rows, config.query_heads * dim);
    activations[Activation::kGateUp] = matrix(device, type, rows, int64_t{2} * config.intermediate);
    activations[Activation::kActivated] = matrix(device, type, rows, config.intermediate);
    selected = matrix(device, type, logit_rows, config.hidden);
    logits = matrix(device, DataType::kF32, logit_rows, config.vocabulary);
    decode_step = device.create_repetition();
    greedy_step = device.create_repetition();
  }

  size_t bytes() const override { return bytes_; }

  /// Those of a pass of `count` rows.
  Activations first_rows(int64_t count) const {
    Activations first;
    std::transform(activations.matrices.begin(), activations.matrices.end(), first.matrices.begin(),
                   [count](const Matrix& matrix) { return matrix.slice_rows(0, count); });
    return first;
  }

  int rows;
  int logit_rows;
  Activations activations;
  Matrix selected;                                  // [logit_rows, hidden]
  Matrix logits;                                    // [logit_rows, vocabulary]
  std::unique_ptr<Device::Repetition> decode_step;  // of passes that give logits for every row
  std::unique_ptr<Device::Repetition> greedy_step;  // and of those that give nothing but the best token

 private:
  Matrix matrix(Device& device, DataType type, int64_t row_count, int64_t columns) {
    const size_t bytes = static_cast<size_t>(row_count * columns) * size_of(type);
    memory_.push_back(device.allocate(bytes));
    bytes_ += bytes;
    return {memory_.back()->data(), type, row_count, columns, columns};
  }

  std::vector<std::unique_ptr<Memory>> memory_;
  size_t bytes_ = 0;
};

struct Layer {
  std::unique_ptr<Weight> attention_norm;  // [1, hidden]
  std::unique_ptr<Weight> qkv;             // [(query_heads + 2 kv_heads) * head_dim, hidden]
  std::unique_ptr<Weight> query_norm;      // [1, head_dim] or null
  std::unique_ptr<Weight> key_norm;        // [1, head_dim] or null
  std::unique_ptr<Weight> output;          // [hidden, query_heads * head_dim]
  std::unique_ptr<Weight> mlp_norm;        // [1, hidden]
  std::unique_ptr<Weight> gate_up;         // [2 * intermediate, hidden]
  std::unique_ptr<Weight> down;            // [hidden, intermediate]
};

/// Copies a row of the device's own type to `target` as float32.
void read_row(Device& device, const Matrix& row, float* target) {
  const auto count = static_cast<size_t>(row.columns);
  if (row.type == DataType::kF32) {
    device.read(target, row.data, count * sizeof(float));
    return;
  }
  std::vector<uint16_t> narrow(count);
  device.read(narrow.data(), row.data, count * sizeof(uint16_t));
  std::transform(narrow.begin(), narrow.end(), target, float_from_bf16);
}

/// A decoder-only transformer: grouped-query attention with rotary positions, optional normalisation of q and k per head
/// (Qwen3), and a SiLU-gated MLP, each behind an RMS norm. Qwen3ForCausalLM and LlamaForCausalLM are this.
class Transformer final : public Model {
 public:
  Transformer(ModelConfig config, WeightSource& loader) : config_(std::move(config)) {
    embedding_ = loader.matrix("model.embed_tokens.weight", config_.vocabulary, config_.hidden);
    for (int layer = 0; layer < config_.layers; ++layer) layers_.push_back(load_layer(loader, layer));
    final_norm_ = loader.vector("model.norm.weight", config_.hidden);
    if (config_.tied_embeddings) {
      loader.ignore("lm_head.weight");
    } else {
      head_ = loader.matrix("lm_head.weight", config_.vocabulary, config_.hidden);
    }
    loader.check_all_used(config_.architecture);
    program_ = program_of_layers();
  }

  const ModelConfig& config() const override { return config_; }

  size_t weight_bytes() const override {
    size_t bytes = 0;
    const auto add = [&](const std::unique_ptr<Weight>& weight) { bytes += weight ? weight->bytes() : 0; };
    for (const Layer& layer : layers_) {
      add(layer.attention_norm), add(layer.qkv), add(layer.query_norm), add(layer.key_norm), add(layer.output);
      add(layer.mlp_norm), add(layer.gate_up), add(layer.down);
    }
    add(embedding_), add(final_norm_), add(head_);
    return bytes;
  }

  size_t step_weight_bytes() const override { return weight_bytes() - (head_ ? embedding_->bytes() : 0); }

  std::unique_ptr<Workspace> create_workspace(Device& device, int rows, int logit_rows) const override {
    return std::make_unique<TransformerWorkspace>(device, config_, rows, logit_rows);
  }

  Matrix forward(Device& device, Workspace& workspace, const ForwardPass& pass) const override {
    auto& space = dynamic_cast<TransformerWorkspace&>(workspace);
    const auto rows = static_cast<int64_t>(pass.tokens.size());
    const auto logit_rows = static_cast<int64_t>(pass.logit_rows.size());
    if (rows > space.rows || logit_rows > space.logit_rows) {
      throw InternalError(fmt::format("a pass of {} rows and {} logit rows in a workspace for {} and {}", rows, logit_rows,
                                      space.rows, space.logit_rows));
    }
    // Where every row gives logits they lie in a row for each, so that decode steps differ in nothing but the batch.
    const bool repeats = logit_rows == rows && pass.probes == nullptr && pass.queries == nullptr;
    if (repeats) {
      const auto operations = [&] { run(device, space, pass); };
      auto* const repetition = pass.best == nullptr ? space.decode_step.get() : space.greedy_step.get();
      device.repeat(repetition, pass.tokens, pass.flows, std::ref(operations));
    } else {
      run(device, space, pass);
    }
    return space.logits.slice_rows(0, logit_rows);
  }

  Matrix run_layers(Device& device, Workspace& workspace, const LayerPass& pass) const override {
    auto& space = dynamic_cast<TransformerWorkspace&>(workspace);
    const bool begins = pass.from.rows == 0;
    const size_t rows = begins ? pass.tokens.size() : pass.from_rows.size();
    const bool fits = rows <= static_cast<size_t>(space.rows) && (!pass.wants_logits || (rows > 0 && space.logit_rows > 0));
    const bool ends = pass.end == config_.layers && pass.end > pass.first;
    if (!fits || pass.first < 0 || pass.end < pass.first || pass.end > config_.layers || (pass.wants_logits && !ends))
      throw InternalError(fmt::format("{} rows in layers {} to {}", rows, pass.first, pass.end));
    const Activations activations = space.first_rows(static_cast<int64_t>(rows));
    const Matrix residual = activations[Activation::kResidual];
    if (begins) {
      device.embed(*embedding_, pass.tokens, nullptr, residual);
    } else {
      device.gather_rows(pass.from, pass.from_rows, residual);
    }
    const auto norm_of = [&](int layer) { return layers_[static_cast<size_t>(layer)].attention_norm.get(); };
    LayerProgram parts;
    if (pass.first < config_.layers) parts.push_back(NormPart{norm_of(pass.first), config_.rms_epsilon});
    for (int layer = pass.first; layer < pass.end; ++layer) {
      const auto own = parts_of_layer(layer);
      // The residual stream that came in is whole.
      parts.insert(parts.end(), own.begin() + (layer == pass.first ? 1 : 0), own.end());
    }
    if (pass.end > pass.first && pass.end < config_.layers) parts.push_back(parts_of_layer(pass.end).front());
    ForwardPass forward;
    forward.flows = pass.flows;
    run_parts(device, forward, parts, activations);
    if (pass.to.rows > 0) {
      std::vector<int32_t> all(rows);
      std::iota(all.begin(), all.end(), 0);
      device.gather_rows(residual, all, pass.to);
    }
    if (pass.wants_logits) {
      const std::array last = {static_cast<int32_t>(rows) - 1};
      forward.logit_rows = last;
      give_logits(device, space, forward, activations);
      return space.logits.slice_rows(0, 1);
    }
    if (!pass.on_queries) return {};
    const auto next = parts_of_layer(pass.end);
    device.run(next.subspan(1, 1), activations);
    append(device, forward, std::get<AttentionPart>(next[2]), activations[Activation::kQkv]);
    pass.on_queries(queries_of(activations));
    return {};
  }

 private:
  void run(Device& device, TransformerWorkspace& space, const ForwardPass& pass) const {
    const Activations activations = space.first_rows(static_cast<int64_t>(pass.tokens.size()));
    device.embed(*embedding_, pass.tokens, pass.picks, activations[Activation::kResidual]);
    make_room(device, pass);
    run_parts(device, pass, program_, activations);
    if (!pass.logit_rows.empty()) give_logits(device, space, pass, activations);  // else a chunk in the middle of a prompt
  }

  /// Of rows that have come through all layers.
  void give_logits(Device& device, TransformerWorkspace& space, const ForwardPass& pass, const Activations& activations) const {
    const auto logit_rows = static_cast<int64_t>(pass.logit_rows.size());
    const Matrix normed = activations[Activation::kNormed];
    device.add_rms_norm(activations[Activation::kResidual], activations[Activation::kDelta], *final_norm_, config_.rms_epsilon,
                        normed);
    Matrix selected = normed;
    if (logit_rows < normed.rows) {
      selected = space.selected.slice_rows(0, logit_rows);
      device.gather_rows(normed, pass.logit_rows, selected);
    }
    const Weight& head = head_ ? *head_ : *embedding_;
    const Matrix logits = space.logits.slice_rows(0, logit_rows);
    if (pass.best == nullptr) {
      device.matmul(selected, head, logits);
    } else {
      device.find_best(selected, head, logits, *pass.best);
    }
  }

  void run_parts(Device& device, const ForwardPass& pass, std::span<const LayerPart> parts,
                 const Activations& activations) const {
    while (!parts.empty()) {
      const std::span<const LayerPart> joined = parts_before_attention(parts);
      if (joined.empty()) {
        attend(device, pass, std::get<AttentionPart>(parts.front()), activations);
        parts = parts.subspan(1);
      } else {
        device.run(joined, activations);
        parts = parts.subspan(joined.size());
      }
    }
  }

  /// Those of the program that begin with the norm before a layer's attention.
  std::span<const LayerPart> parts_of_layer(int layer) const {
    const size_t each = program_.size() / layers_.size();
    return std::span(program_).subspan(static_cast<size_t>(layer) * each, each);
  }

  Matrix queries_of(const Activations& activations) const {
    return activations[Activation::kQkv].slice_columns(0, int64_t{config_.query_heads} * config_.head_dim);
  }

  /// For the new tokens, where others leave.
  static void make_room(Device& device, const ForwardPass& pass) {
    std::vector<const CompiledFlow*> done;
    for (const CompiledFlow* const flow : pass.flows) {
      if (flow == nullptr || !flow->plan().graph.eviction || std::find(done.begin(), done.end(), flow) != done.end()) continue;
      device.evict(*flow);
      done.push_back(flow);
    }
  }

  static const CompiledFlow* flow_of(const ForwardPass& pass, int layer) {
    return pass.flows.empty() ? nullptr : pass.flows[static_cast<size_t>(layer)];
  }

  /// The new tokens of a layer.
  void append(Device& device, const ForwardPass& pass, const AttentionPart& part, Matrix qkv) const {
    device.rope_append(part.layer, qkv, config_.query_heads, part.query_gain, part.key_gain, config_.rms_epsilon, config_.rope);
    if (const CompiledFlow* const flow = flow_of(pass, part.layer)) device.refresh_fields(part.layer, *flow);
  }

  /// Attention of a layer, whose new tokens are appended to the cache.
  void attend(Device& device, const ForwardPass& pass, const AttentionPart& part, const Activations& activations) const {
    append(device, pass, part, activations[Activation::kQkv]);
    const Matrix queries = queries_of(activations);
    const CompiledFlow* const flow = flow_of(pass, part.layer);
    if (pass.queries != nullptr) {
      read_row(device, queries.slice_rows(queries.rows - 1, 1), pass.queries + int64_t{part.layer} * queries.columns);
    }
    Device::Attention call;
    call.layer = part.layer;
    call.query_heads = config_.query_heads;
    call.scale = 1 / std::sqrt(static_cast<float>(config_.head_dim));
    call.flow = flow;
    call.probe = pass.probes != nullptr && flow != nullptr ? &pass.probes[part.layer] : nullptr;
    device.attention(call, queries, activations[Activation::kAttended]);
  }

  /// The layers as their device does them: what follows a layer's MLP is what the next begins with.
  LayerProgram program_of_layers() const {
    LayerProgram program;
    program.push_back(NormPart{layers_.front().attention_norm.get(), config_.rms_epsilon});
    for (int index = 0; index < config_.layers; ++index) {
      const Layer& layer = layers_[static_cast<size_t>(index)];
      if (index > 0) program.push_back(AddNormPart{layer.attention_norm.get(), config_.rms_epsilon});
      program.push_back(ProductPart{layer.qkv.get(), Activation::kNormed, Activation::kQkv});
      program.push_back(AttentionPart{index, layer.query_norm.get(), layer.key_norm.get()});
      program.push_back(ProductPart{layer.output.get(), Activation::kAttended, Activation::kDelta});
      program.push_back(AddNormPart{layer.mlp_norm.get(), config_.rms_epsilon});
      program.push_back(GatedProductPart{layer.gate_up.get()});
      program.push_back(ProductPart{layer.down.get(), Activation::kActivated, Activation::kDelta});
    }
    return program;
  }

  Layer load_layer(WeightSource& loader, int index) const {
    const std::string prefix = fmt::format("model.layers.{}.", index);
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    const int64_t hidden = config_.hidden;
    const int64_t queries = int64_t{config_.query_heads} * config_.head_dim;
    const int64_t keys = int64_t{config_.kv_heads} * config_.head_dim;
    const int64_t inner = config_.intermediate;
    Layer layer;
    layer.attention_norm = loader.vector(prefix + "input_layernorm.weight", hidden);
    layer.qkv = loader.matrix({attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"},
                              {queries, keys, keys}, hidden);
    if (config_.qk_norm) {
      layer.query_norm = loader.vector(attention + "q_norm.weight", config_.head_dim);
      layer.key_norm = loader.vector(attention + "k_norm.weight", config_.head_dim);
    }
    layer.output = loader.matrix(attention + "o_proj.weight", hidden, queries);
    layer.mlp_norm = loader.vector(prefix + "post_attention_layernorm.weight", hidden);
    layer.gate_up = loader.matrix({mlp + "gate_proj.weight", mlp + "up_proj.weight"}, {inner, inner}, hidden);
    layer.down = loader.matrix(mlp + "down_proj.weight", hidden, inner);
    loader.ignore(attention + "rotary_emb.inv_freq");  // a buffer that old checkpoints carry; config.json gives the same
    return layer;
  }

  ModelConfig config_;
  std::unique_ptr<Weight> embedding_;  // [vocabulary, hidden]
  std::vector<Layer> layers_;
  LayerProgram program_;
  std::unique_ptr<Weight> final_norm_;  // [1, hidden]
  std::unique_ptr<Weight> head_;        // [vocabulary, hidden], null if tied
};

}  // namespace

std::unique_ptr<Model> create_transformer(ModelConfig config, WeightSource& weights) {
  return std::make_unique<Transformer>(std::move(config), weights);
}

std::unique_ptr<Model> load_model(const std::string& path, Device& device) {
  ModelConfig config = load_config(path);
  require_group(device.info(), config.group());  // before the weights, which may take minutes
  const Checkpoint checkpoint = Checkpoint::open(path);
  WeightLoader loader(checkpoint, device);
  return create_transformer(std::move(config), loader);
}

}  // namespace sluice
