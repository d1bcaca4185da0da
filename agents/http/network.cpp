#include "agents/http/network.h"

#include <arpa/inet.h>

#include <array>
#include <string_view>

namespace sluice {

std::string network_of(const std::string& address) {
  constexpr size_t kNetworkBytes = 8;
  std::array<char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return address;
  constexpr std::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);  // before an address of IPv4
  if (std::string_view(bytes.data(), bytes.size()).starts_with(kMapped)) return {bytes.data(), bytes.size()};
  return {bytes.data(), kNetworkBytes};
}

}  // namespace sluice
