#include "agents/traces/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "agents/traces/capture.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

/// Copies what KV heads keep each for themselves, [tokens, dim], to [tokens, kv_heads, dim].
void interleave(std::span<const float> of_head, int kv_head, int kv_heads, int dim, std::vector<float>& all) {
  const size_t tokens = of_head.size() / static_cast<size_t>(dim);
  for (size_t token = 0; token < tokens; ++token) {
    const auto from = of_head.begin() + static_cast<ptrdiff_t>(token) * dim;
    std::copy(from, from + dim, all.begin() + (static_cast<ptrdiff_t>(token) * kv_heads + kv_head) * dim);
  }
}

TracedLayer layer_of(const Capture& capture, int layer, const ModelConfig& config) {
  TracedLayer traced;
  traced.layer = layer;
  LayerTensors& tensors = traced.tensors;
  tensors.tokens = capture.tokens();
  tensors.steps = capture.steps();
  tensors.kv_heads = config.kv_heads;
  tensors.query_heads = config.query_heads;
  tensors.dim = config.head_dim;
  const auto row = static_cast<size_t>(config.kv_heads) * static_cast<size_t>(config.head_dim);
  tensors.keys.resize(static_cast<size_t>(tensors.tokens) * row);
  tensors.values.resize(tensors.keys.size());
  for (int head = 0; head < config.kv_heads; ++head) {
    const oracle::Row seen = capture.row(layer, head);
    interleave(seen.keys, head, config.kv_heads, config.head_dim, tensors.keys);
    interleave(seen.values, head, config.kv_heads, config.head_dim, tensors.values);
  }
  for (int step = 0; step < tensors.steps; ++step) {
    for (int head = 0; head < config.kv_heads; ++head) {
      const std::span<const float> query = capture.row(layer, head, step).query;
      tensors.queries.insert(tensors.queries.end(), query.begin(), query.end());
    }
  }
  return traced;
}

}  // namespace

void check_record(const RecordOptions& options, const ModelConfig& config) {
  if (options.layers.empty()) throw InputError("no layer to record", "name some: --layers 18,21");
  for (const int layer : options.layers) {
    if (layer < 0 || layer >= config.layers) {
      throw InputError(fmt::format("there is no layer {}: the model has {}, from 0 on", layer, config.layers));
    }
    if (std::count(options.layers.begin(), options.layers.end(), layer) > 1) {
      throw InputError(fmt::format("layer {} is named twice", layer));
    }
  }
  if (options.tokens > config.max_positions) {
    throw InputError(fmt::format("windows of {} tokens exceed the model's {} positions", options.tokens, config.max_positions));
  }
  if (options.steps < 1 || options.steps > std::min(Capture::kMostSteps, options.tokens)) {
    throw InputError(fmt::format("{} steps in windows of {} tokens", options.steps, options.tokens),
                     fmt::format("from 1 to as many as a window has tokens, {} at most", Capture::kMostSteps));
  }
}

std::vector<TracedLayer> record_window(Device& device, const Model& model, std::span<const int32_t> tokens,
                                       const RecordOptions& options, const std::function<void()>& pace) {
  check_record(options, model.config());
  const size_t before = tokens.size() - static_cast<size_t>(options.steps) + 1;
  const std::vector<int32_t> prompt(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(before));
  Capture capture(device, model, prompt, DataType::kBF16, pace, options.layers);
  for (const int32_t token : tokens.subspan(before)) {
    pace();
    capture.feed(token);
  }
  std::vector<TracedLayer> layers;
  for (const int layer : options.layers) layers.push_back(layer_of(capture, layer, model.config()));
  return layers;
}

}  // namespace sluice
