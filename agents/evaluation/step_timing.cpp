#include "agents/evaluation/step_timing.h"

#include <chrono>

#include "host/serving/engine.h"
#include "scripting/base/error.h"

namespace sluice {

void require_step(Engine& engine) {
  if (engine.step()) return;
  require_finite(engine.take_finished());  // those of a flow that makes NaN end early
  throw InternalError("an engine ran out of work while it was timed");
}

double time_steps(Engine& engine, int steps) {
  require_step(engine);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) require_step(engine);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  engine.settle();
  return seconds;
}

}  // namespace sluice
