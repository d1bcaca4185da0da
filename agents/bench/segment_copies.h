#pragma once

#include "agents/bench/bench.h"
#include "agents/bench/segment_texts.h"
#include "host/transformer/model.h"
#include "kernels/device.h"

namespace sluice {

/// K and V of a prompt's segments go to their new places, in all layers, as one call: from what the host says of them on, until
/// all is there. They stand elsewhere in their pages than before, as text does.
BenchRow measure_segment_copies(Device& device, const ModelConfig& config, const SegmentLayout& layout, double seconds);

}  // namespace sluice
