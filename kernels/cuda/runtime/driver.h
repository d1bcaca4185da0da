#pragma once

#include <cuda.h>

/// Functions of the driver, without linking the driver: machines that only build have none.
namespace sluice::cuda {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
EncodeTiled encode_tiled();

}  // namespace sluice::cuda
