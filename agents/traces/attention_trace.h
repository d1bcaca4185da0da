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
  int model_layers = 0;
  std::vector<TraceWindow> windows;

  // The same in all windows and layers.
  int query_heads() const { return first().query_heads; }
  int kv_heads() const { return first().kv_heads; }
  int head_dim() const { return first().dim; }

 private:
  const LayerTensors& first() const { return windows.at(0).layers.at(0).tensors; }
};

/// Bytes of all files of a trace at most.
inline constexpr size_t kLargestTrace = size_t{1} << 30;

/// Reads the trace in a directory: trace.json (schema sluice.trace/1, docs/EVALUATION.md) and a safetensors file a layer and
/// window, each of which is one that `sluice run` takes. Throws InputError for what is missing, cut off, changed (every file has
/// its digest), of shapes that disagree, or not finite.
AttentionTrace load_trace(const std::string& directory);

/// Writes one, in an order that the same trace always has; makes the directory if it is not there. Throws InputError for a
/// directory that holds other files, or what cannot be written.
void save_trace(const AttentionTrace& trace, const std::string& directory);

/// Where the trace that comes with the program is; empty if it is not there.
std::string shipped_trace();

}  // namespace sluice
