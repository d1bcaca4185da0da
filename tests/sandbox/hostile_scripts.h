#pragma once

#include <string>
#include <vector>

namespace sluice::test {

struct HostileScript {
  const char* name;
  std::string source;
};

/// Every trick that we know of by which a script has broken out of, hung or exhausted an embedded Lua.
std::vector<HostileScript> hostile_scripts();

/// Runs `body` within flow.cache, which has a tensor at hand.
inline std::string in_cache(const std::string& body) {
  return "local flow = sluice.flow{name = 'x'}\nfunction flow.cache(c)\n" + body +
         "\nend\nfunction flow.index(q, c) return sluice.window{last = 4} end\nreturn flow\n";
}

}  // namespace sluice::test
