#pragma once

#include <string>

namespace sluice {

/// Terabytes a second (read plus written) of a copy in the memory of the device of this name ("cpu", "cuda").
double measure_copy_of(const std::string& device, int threads);

}  // namespace sluice
