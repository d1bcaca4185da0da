#include "scripting/base/resource_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace sluice {

namespace {

constexpr std::array kLacks = {EMFILE, ENFILE, ENOMEM, EAGAIN, ENOSPC, EDQUOT};

}  // namespace

bool is_lack(int error) { return std::find(kLacks.begin(), kLacks.end(), error) != kLacks.end(); }

void throw_system_error(const std::string& doing, int error) {
  const std::string message = fmt::format("{}: {}", doing, std::strerror(error));
  if (is_lack(error)) throw ResourceError(message);
  throw InternalError(message);
}

bool is_lack(const std::exception& error) {
  if (const auto* by_system = dynamic_cast<const std::system_error*>(&error)) return is_lack(by_system->code().value());
  return dynamic_cast<const ResourceError*>(&error) != nullptr;
}

}  // namespace sluice
