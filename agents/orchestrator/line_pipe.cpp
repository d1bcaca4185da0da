#include "agents/orchestrator/line_pipe.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "scripting/base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

/// Milliseconds for poll, rounded up; -1: no limit.
int time_left(const std::optional<Clock::time_point>& deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));  // longer waits are waited for in parts
}

}  // namespace

bool LineReader::take_line(std::string& line) {
  const size_t end = buffer_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    return false;
  }
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  searched_ = 0;
  return true;
}

LineReader::Outcome LineReader::next(std::string& line, std::optional<Clock::time_point> deadline) {
  while (!take_line(line)) {
    if (buffer_.size() > most_bytes_) throw InputError(fmt::format("a line of more than {} bytes", most_bytes_));
    pollfd waiting{descriptor_, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, time_left(deadline));
    if (ready < 0 && errno != EINTR) throw InternalError(fmt::format("poll: {}", std::strerror(errno)));
    if (ready <= 0) {
      if (deadline && Clock::now() >= *deadline) return Outcome::kDeadline;
      continue;
    }
    std::array<char, 1 << 16> bytes{};
    const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
    if (count == 0) return Outcome::kEnd;
    if (count < 0 && errno != EINTR && errno != EAGAIN) throw InternalError(fmt::format("read: {}", std::strerror(errno)));
    if (count > 0) buffer_.append(bytes.data(), static_cast<size_t>(count));
  }
  return Outcome::kLine;
}

bool write_line(int descriptor, std::string_view line, std::optional<Clock::time_point> deadline) {
  const std::string whole = std::string(line) + '\n';
  for (size_t at = 0; at < whole.size();) {
    const ssize_t count = ::write(descriptor, whole.data() + at, whole.size() - at);
    if (count > 0) {
      at += static_cast<size_t>(count);
    } else if (errno == EPIPE) {
      return false;
    } else if (errno == EAGAIN) {
      if (deadline && Clock::now() >= *deadline) return false;
      pollfd waiting{descriptor, POLLOUT, 0};
      ::poll(&waiting, 1, time_left(deadline));
    } else if (errno != EINTR) {
      throw InternalError(fmt::format("write: {}", std::strerror(errno)));
    }
  }
  return true;
}

}  // namespace sluice
