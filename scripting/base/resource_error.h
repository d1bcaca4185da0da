#pragma once

#include <exception>
#include <string>

#include "scripting/base/error.h"

namespace sluice {

/// The machine or this process has nothing left of something: descriptors, memory, processes, disk. Nobody's input is at fault,
/// and what was tried may work later.
class ResourceError : public InternalError {
 public:
  using InternalError::InternalError;
};

/// A device has no room for what was asked of it, which may be too much.
class DeviceMemoryError : public InputError {
 public:
  using InputError::InputError;
};

/// Throws what an error number of the system means: ResourceError for a lack, InternalError for anything else. The message is
/// `doing` and the system's own words.
[[noreturn]] void throw_system_error(const std::string& doing, int error);

/// Whether an error number of the system means such a lack.
bool is_lack(int error);

/// Whether it is a ResourceError, or the std::system_error of such a lack. Not std::bad_alloc: that may be what was asked for,
/// which would ask for as much the next time.
bool is_lack(const std::exception& error);

}  // namespace sluice
