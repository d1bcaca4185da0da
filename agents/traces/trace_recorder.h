#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "agents/traces/attention_trace.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

struct RecordOptions {
  std::vector<int> layers;  // to keep
  int tokens = 4096;        // of a window
  int steps = 64;           // decode steps at its end
};

/// Has the model read `tokens`, densely, and keeps what the layers meet in its last steps. `pace` is called between passes and
/// may throw to end the work. Throws InputError for layers that the model has not got, and for windows that it cannot hold.
std::vector<TracedLayer> record_window(Device& device, const Model& model, std::span<const int32_t> tokens,
                                       const RecordOptions& options, const std::function<void()>& pace);

/// Throws InputError as `record_window` does, before a model is loaded.
void check_record(const RecordOptions& options, const ModelConfig& config);

}  // namespace sluice
