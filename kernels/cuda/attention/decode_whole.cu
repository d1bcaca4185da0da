#include "kernels/cuda/attention/decode_kernel.cuh"

namespace sluice::cuda::decode {

template void launch_layout<Lists::kWhole>(const PageLayout&, const CUtensorMap&, const Arguments&, int, Stream);

}  // namespace sluice::cuda::decode
