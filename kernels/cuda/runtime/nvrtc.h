#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cuda {

/// Compiles CUDA C++ for an architecture ("sm_90a") with NVRTC and returns the cubin. The source includes nothing; its kernels
/// are extern "C", so that they keep their names, and its other functions run on the device without saying so. Arithmetic
/// follows IEEE 754: denormals count, quotients and square roots are rounded correctly; a * b + c may be rounded once.
/// Throws InternalError where the source does not compile (see explain_compile_log), InputError where NVRTC is missing or older
/// than 12.0. Any number of threads may call it.
std::vector<std::byte> compile_to_cubin(const std::string& source, const std::string& architecture);

/// The version of NVRTC on this machine, "13.0". Throws InputError where it is missing.
std::string nvrtc_version();

/// The options that compile_to_cubin gives NVRTC besides the architecture, joined by spaces.
std::string nvrtc_options();

/// What went wrong in a compilation: the first error of NVRTC's log, the line of the source that it points to, and the operator
/// of the flow which that line came from: the nearest line above it that begins with "// %" (a comment of the generator's), or
/// one of the same operator that says where the script has it. Parts that the log or the source lack are left out; any text is
/// accepted.
std::string explain_compile_log(std::string_view source, std::string_view log);

}  // namespace sluice::cuda
