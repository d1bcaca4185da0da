#pragma once

#include <cstddef>
#include <string>

namespace sluice {

/// The whole of a text that the user names: a file, a pipe ("/dev/stdin", "/dev/fd/63" of a shell's <(command), a named
/// pipe), or "-" for standard input. A pipe can be read only once. A named pipe waits a second for its first writer; one that
/// nobody writes to is empty. Throws InputError for directories and the like, for what cannot be read, for standard input the
/// second time, and for more than `limit` bytes.
std::string read_input(const std::string& path, size_t limit);

/// What messages call it: "standard input" for "-".
std::string name_of_input(const std::string& path);

}  // namespace sluice
