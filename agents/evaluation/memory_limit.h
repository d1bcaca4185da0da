#pragma once

#include <cstddef>
#include <string>

#include "agents/evaluation/suite.h"
#include "host/config.h"

namespace sluice {

/// Lets this process have `more` bytes of private memory beyond what it has now; what asks for more is refused (std::bad_alloc).
/// A later call replaces the limit. Throws InternalError where the system has no such limit.
void limit_memory(size_t more);

/// That memory ran out, with the limit if there is one.
std::string memory_ran_out();

/// Bytes that dense attention and a flow need to be asked what `suite` asks of a model, beside the model: K and V of a batch as
/// snapshots and in pools.
size_t memory_of_batches(const Suite& suite, const ModelConfig& config);

}  // namespace sluice
