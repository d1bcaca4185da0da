#pragma once

#include "agents/traces/attention_trace.h"
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

/// For tracing a flow that is to be replayed on that attention.
inline TraceOptions trace_options(const AttentionTrace& trace) {
  TraceOptions options;
  options.head_dim = trace.head_dim();
  options.group = trace.query_heads() / trace.kv_heads();
  options.layers = trace.model_layers;
  options.heads = trace.query_heads();
  return options;
}

}  // namespace sluice
