#pragma once

#include <string>

#include "store/error.h"

namespace sluice::store {

/// What an error number of the system says about files: kCorrupted where the file is at fault (it is missing, or of another
/// kind), kFull, and kUnwritable for whatever the machine lacks or refuses, which is no fault of the data.
ErrorKind kind_of_system_error(int error);

/// What to try against it; empty if there is nothing to say.
std::string hint_of_system_error(int error);

/// Throws StoreError: "cannot ", `doing` and the system's own words.
[[noreturn]] void throw_system_error(const std::string& doing, int error);

}  // namespace sluice::store
