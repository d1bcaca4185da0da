#pragma once

#include <string>

#include "scripting/graph/graph.h"

namespace sluice::cuda::codegen {

/// How a reduction combines entries: from Op::start(), by Op::of, then `finished`.
struct Reduction {
  std::string op;        // Add, Max or Min of the prelude
  bool squares = false;  // of squares
  bool mean = false;

  /// The statement that adds `x` to `sum`.
  std::string step(const std::string& sum, const std::string& x) const;
  /// What `sum` becomes after `count` entries.
  std::string finished(const std::string& sum, const std::string& count) const;
};

/// Reductions, interleaved ones and contractions (whose entries are products).
Reduction reduction_of(Op op);

}  // namespace sluice::cuda::codegen
