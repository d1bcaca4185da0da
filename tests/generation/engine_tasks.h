#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "agents/evaluation/flow_script.h"
#include "agents/generation/engine_thread.h"
#include "scripting/lua/trace.h"
#include "tests/support/source_path.h"

namespace sluice::test {

/// One engine at a time.
inline GenerationOptions one_engine(const std::string& model) {
  GenerationOptions options;
  options.model = model;
  options.threads = 1;
  options.pool_bytes = size_t{8} << 20;
  options.most_engines = 1;
  options.read_flow = [](const std::string& name, const TraceOptions& trace) {
    return read_flow(testing::source_path("scripting/flows/" + name + ".lua").string()).trace(trace);
  };
  return options;
}

inline GenerationTask task(const std::string& flow, int tokens) {
  GenerationTask made;
  made.flow = flow;
  made.request.prompt = {1, 4, 27, 13};
  made.request.max_tokens = tokens;
  made.request.ignore_eos = true;
  made.events = std::make_shared<GenerationQueue>();
  return made;
}

/// How a task ends; nothing if it does not within a time far below that after which an idle engine is dropped.
inline std::optional<GenerationEvent::Kind> end_of(GenerationQueue& events) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    const auto event = events.pop(std::chrono::milliseconds(50));
    if (event && (event->kind == GenerationEvent::Kind::kFinished || event->kind == GenerationEvent::Kind::kFailed))
      return event->kind;
  }
  return {};
}

}  // namespace sluice::test
