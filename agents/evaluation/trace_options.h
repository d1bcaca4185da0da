#pragma once

#include "host/transformer/model.h"
#include "scripting/lua/trace.h"

namespace sluice {

/// For tracing a flow that a model of this shape will run.
inline TraceOptions trace_options(const ModelConfig& config) {
  TraceOptions options;
  options.head_dim = config.head_dim;
  options.group = config.group();
  options.layers = config.layers;
  options.heads = config.query_heads;
  return options;
}

}  // namespace sluice
