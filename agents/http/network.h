#pragma once

#include <string>

namespace sluice {

/// Whom an address stands for: of IPv6 its network, since every host has a whole one (its first 64 bits, as bytes); an address of
/// IPv4, also one that is written as IPv6, by itself.
std::string network_of(const std::string& address);

}  // namespace sluice
