#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "agents/evaluation/suite.h"
#include "host/transformer/config.h"

namespace sluice {

/// A limit on the private memory of this process; what asks for more is refused (std::bad_alloc).
class MemoryLimit {
 public:
  /// Gives what was freed back to the system, and lets the process have `more` bytes beyond what it has. What stays from one job
  /// to the next, since the first call, counts to a quarter of `more`: the limit does not grow for ever, and the allocator may
  /// keep something. A later call replaces the limit. Throws InternalError where the system has no such limit.
  void allow(size_t more);

 private:
  std::optional<size_t> base_;  // bytes
};

/// That memory ran out, with the limit if there is one.
std::string memory_ran_out();

/// Bytes that dense attention and a flow need to be asked what `suite` asks of a model, beside the model: K and V of a batch as
/// snapshots and in pools.
size_t memory_of_batches(const Suite& suite, const ModelConfig& config);

}  // namespace sluice
