#pragma once

// Instruction sets that kernels are compiled for: AVX-512, AVX2, SSE4 and the compiler's baseline. The others would only
// cost build time. Include before any header of Highway.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
