#pragma once

#include <string>
#include <vector>

namespace sluice {

/// What comes with the program: the first of `places`, relative paths, that is there in the folder of the program or in one above
/// it, the nearest first. A build folder lies in the source tree, however deep; an installation has bin/ and share/. Empty if
/// there is none.
std::string find_program_data(const std::vector<std::string>& places);

}  // namespace sluice
