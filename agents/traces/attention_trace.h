#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agents/traces/layer_tensors.h"

namespace sluice {

/// One layer of a window.
struct TracedLayer {
  int layer = 0;  // of the model
  LayerTensors tensors;
};

/// A piece of text that a model has read, the last tokens one by one.
struct TraceWindow {
  std::string text;         // what the text is called
  std::string text_digest;  // of its tokens (BLAKE2b, 32 hexadecimal digits)
  int64_t first_token = 0;  // of the text; what a tokenizer puts before a text stands before it in the window
  std::vector<TracedLayer> layers;
};

/// What some layers of a model asked attention with, and K and V as they found them: enough to judge selections on real
/// attention without the model.
struct AttentionTrace {
  std::string model;         // its name
  std::string model_digest;  // host/weights/model_digest.h
  std::string digest;        // of trace.json, and so of all files; "" where it was not read from any
  int model_layers = 0;
  std::vector<TraceWindow> windows;

  // The same in all windows and layers.
  int query_heads() const { return first().query_heads; }
  int kv_heads() const { return first().kv_heads; }
  int head_dim() const { return first().dim; }

 private:
  const LayerTensors& first() const { return windows.at(0).layers.at(0).tensors; }
};

/// What a trace may be. Others are neither written nor read.
struct TraceLimits {
  static constexpr size_t kBytes = size_t{1} << 30;        // of all files
  static constexpr double kProducts = double{1ULL << 35};  // in q.k of all dense steps; heads count as 64 channels at least
  static constexpr double kMasses = double{1ULL << 29};    // layers x steps x KV heads x tokens: bytes of what is kept of them
  static constexpr int kTokens = 1 << 20;                  // of a window
  static constexpr int kSteps = 1024;                      // of a window
  static constexpr int kKvHeads = 1024;
  static constexpr size_t kWindows = 4096;
  static constexpr size_t kName = 200;  // characters of the model's name
};

/// Throws InputError, in which `name` stands for the trace, for `layers` layers in all of this shape that are beyond a limit, or
/// of heads that no flow can be traced for.
void check_trace_size(const LayerTensors& shape, size_t layers, const std::string& name);

/// Reads the trace in a directory: trace.json (schema sluice.trace/1, docs/EVALUATION.md) and a safetensors file a layer and
/// window, each of which is one that `sluice run` takes. Throws InputError for what is missing, cut off, changed (every file has
/// its digest), of shapes that disagree, beyond TraceLimits, or not finite as bfloat16.
AttentionTrace load_trace(const std::string& directory);

/// Throws InputError for a directory that cannot be made or holds other files than those of a trace, as `save_trace` does.
void prepare_trace_directory(const std::string& directory);

/// Writes one, in an order that the same trace always has; makes the directory if it is not there. An earlier trace in it stays
/// whole until the new one is. Throws InputError for what cannot be written.
void save_trace(const AttentionTrace& trace, const std::string& directory);

/// Where the trace that comes with the program is; empty if it is not there.
std::string shipped_trace();

}  // namespace sluice
