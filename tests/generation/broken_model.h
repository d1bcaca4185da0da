#pragma once

#include <string>

namespace sluice::test {

/// Writes a copy of the mini model whose last norm is NaN, so that every engine with it fails. Its folder.
std::string write_broken_model();

}  // namespace sluice::test
