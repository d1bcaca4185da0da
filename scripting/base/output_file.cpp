#include "scripting/base/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "scripting/base/error.h"

namespace sluice {
namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw InputError(fmt::format("{}: cannot be written: {}", path, reason), "check the folder, its permissions and its space");
}

/// The file that a path leads to, through links, even if it is not there yet.
fs::path target_of(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code error;
  fs::path target = path;
  for (int links = 0; links < kMostLinks && !fs::exists(target, error) && fs::is_symlink(target, error); ++links) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  const fs::path real = fs::canonical(target, error);
  return error ? target : real;
}

// What a signal would leave behind.
std::atomic<const char*> unfinished = nullptr;

extern "C" void remove_unfinished(int signal) {
  if (const char* path = unfinished.load()) ::unlink(path);
  ::raise(signal);  // SA_RESETHAND: now it does what it does by default
}

void remove_at_signals(const std::string& path) {
  unfinished = path.c_str();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGXFSZ}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;  // nohup, for one, ignores it
    action.sa_handler = remove_unfinished;
    action.sa_flags = SA_RESETHAND;
    ::sigaction(signal, &action, nullptr);
  }
}

/// Whether `input` is the file `output`, or a folder that holds it.
bool holds(const std::string& input, const fs::path& output) {
  std::error_code error;
  if (fs::equivalent(input, output, error)) return true;
  if (!fs::is_directory(input, error)) return false;
  for (const auto& entry : fs::directory_iterator(input, error)) {
    if (fs::equivalent(entry.path(), output, error)) return true;
  }
  return false;
}

/// Opens a pipe for writing once there is a reader, for whom it waits a while.
int open_pipe(const std::string& path) {
  constexpr int kTries = 100;
  constexpr std::chrono::milliseconds kBetween(10);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const int pipe = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (pipe >= 0) return pipe;
    if (errno != ENXIO) refuse(path, std::strerror(errno));
    std::this_thread::sleep_for(kBetween);
  }
  refuse(path, "nobody reads this pipe");
}

}  // namespace

OutputFile::OutputFile(const std::string& path, const std::vector<std::string>& inputs) {
  if (path.empty()) throw InputError("a file without a name cannot be written", "give it a path");
  if (path == "-") throw InputError("-: standard output cannot be used here", "name a file to write");
  std::error_code error;
  const fs::path target = target_of(path);
  path_ = target.string();
  const fs::file_status status = fs::status(target, error);
  if (fs::is_directory(status)) refuse(path, "it is a directory");
  const bool exists = fs::exists(status);
  if (!exists && fs::is_symlink(target, error)) refuse(path, std::strerror(ELOOP));
  if (exists && ::access(path_.c_str(), W_OK) != 0) refuse(path, std::strerror(errno));
  if (exists && !fs::is_regular_file(status)) {
    open_path_ = path_;
    if (fs::is_fifo(status)) pipe_ = open_pipe(path_);
    return;
  }
  for (const std::string& input : inputs) {
    if (exists && holds(input, target)) throw InputError(fmt::format("{}: it is an input", path), "name another file to write");
  }
  // A name of its own: one made of the file's could be too long.
  for (int attempt = 0;; ++attempt) {
    open_path_ = (target.parent_path() / fmt::format(".sluice.{}.{}.tmp", ::getpid(), attempt)).string();
    const int file = ::open(open_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
      ::close(file);
      break;
    }
    if (errno != EEXIST || attempt == 100) refuse(path, std::strerror(errno));
  }
  remove_at_signals(open_path_);
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!kept_ && open_path_ != path_) fs::remove(open_path_, ignored);
  if (pipe_ >= 0) ::close(pipe_);
  unfinished = nullptr;
}

void OutputFile::keep() {
  std::error_code error;
  if (open_path_ != path_) fs::rename(open_path_, path_, error);
  if (error) refuse(path_, error.message());
  kept_ = true;
}

void OutputFile::write(const std::function<void(const std::string&)>& write_to) {
  try {
    write_to(open_path_);
  } catch (const InputError&) {
    refuse(path_, "is the disk full?");
  }
  keep();
}

void OutputFile::write(std::string_view text) {
  write([&](const std::string& path) {
    std::ofstream stream(path, std::ios::binary);
    stream << text << std::flush;
    if (!stream) throw InputError("it cannot be written");
  });
}

}  // namespace sluice
