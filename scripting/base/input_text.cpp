#include "scripting/base/input_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "scripting/base/error.h"

namespace sluice {
namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InputError(fmt::format("{}: {}", name_of_input(path), std::strerror(error)), "check the path and its permissions");
}

/// A descriptor to read `path` from; closed with this object unless it is standard input.
class Input {
 public:
  // Without O_NONBLOCK a named pipe would wait for its writer for ever; regular files do not care.
  explicit Input(const std::string& path)
      : value_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) refuse(path, errno);
  }
  ~Input() {
    if (value_ != STDIN_FILENO) ::close(value_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

/// Until there is a writer, something to read, or a writer that has gone. A pipe that never had one is readable at once, and
/// empty, as if it had ended.
void wait_for_writer(int pipe) {
  constexpr int kMilliseconds = 1000;
  pollfd readable{pipe, POLLIN, 0};
  ::poll(&readable, 1, kMilliseconds);  // it reports a hang-up only after a writer was there
}

/// Standard input can be read once. Throws InputError the second time.
void take_standard_input() {
  static bool taken = false;
  if (taken) throw InputError("standard input is wanted twice", "give the others as files");
  taken = true;
}

}  // namespace

std::string name_of_input(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string read_input(const std::string& path, size_t limit) {
  if (path == "-") take_standard_input();
  const Input input(path);
  struct stat status {};
  if (::fstat(input.get(), &status) != 0) refuse(path, errno);
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) {
    throw InputError(fmt::format("{}: neither a file nor a pipe", name_of_input(path)));
  }
  if (S_ISFIFO(status.st_mode) && path != "-") wait_for_writer(input.get());
  std::string text;
  for (;;) {
    const size_t done = text.size();
    // One byte more than a text may have shows that it is too large.
    text.resize(std::min(limit + 1, std::max<size_t>(2 * done, 1 << 16)));
    const ssize_t count = ::read(input.get(), text.data() + done, text.size() - done);
    const int error = errno;
    text.resize(done + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return text;
    if (text.size() > limit) {
      throw InputError(fmt::format("{}: more than the {} bytes that such a file may have", name_of_input(path), limit));
    }
    if (count > 0 || error == EINTR) continue;
    if (error != EAGAIN) refuse(path, error);
    pollfd writer{input.get(), POLLIN, 0};
    ::poll(&writer, 1, -1);  // whatever it says, the next read says it again
  }
}

}  // namespace sluice
