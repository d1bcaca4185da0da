#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// The reading end of a pipe, by lines.
class LineReader {
 public:
  /// Lines longer than `most_bytes` are refused.
  LineReader(int descriptor, size_t most_bytes) : descriptor_(descriptor), most_bytes_(most_bytes) {}

  enum class Outcome { kLine, kEnd, kDeadline };
  /// Waits for the next line until `deadline`; without it for as long as it takes. Throws InputError for a line that is too
  /// long, InternalError for a pipe that cannot be read.
  Outcome next(std::string& line, std::optional<std::chrono::steady_clock::time_point> deadline = {});

 private:
  bool take_line(std::string& line);

  int descriptor_;
  size_t most_bytes_;
  std::string buffer_;
  size_t searched_ = 0;  // bytes of the buffer without a line break
};

/// Writes `line` and a line break. Returns false if nobody reads any more or, on a pipe that does not block, nobody has read it
/// all until `deadline`.
bool write_line(int descriptor, std::string_view line, std::optional<std::chrono::steady_clock::time_point> deadline = {});

}  // namespace sluice
