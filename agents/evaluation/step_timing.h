#pragma once

namespace sluice {

class Engine;

/// Passes that `time_steps` takes beside those that it times: the first, which begins with nothing under way, and the one that
/// runs ahead when the clock stops.
constexpr int kUntimedPasses = 2;

/// One pass. Throws InputError if the engine has nothing left to do since the model's logits are not finite, and else
/// InternalError.
void require_step(Engine& engine);

/// Seconds of `steps` passes as they follow each other in a busy engine. No pass runs when this returns: on a device that engines
/// share it would be part of another's time.
double time_steps(Engine& engine, int steps);

}  // namespace sluice
