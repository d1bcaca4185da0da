#pragma once

#include <string>

#include "scripting/graph/plan.h"

namespace sluice {

/// Throws FlowError, which names the place of sluice.flow{...}, for a plan that a device of this name ("cpu", "cuda") refuses
/// whatever is asked of it. Needs no such device.
void require_device_takes(const Plan& plan, const std::string& device);

}  // namespace sluice
