#include "agents/cli/arguments.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "scripting/graph/error.h"

namespace sluice::cli {
namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw InputError(fmt::format("{}: cannot be written: {}", path, reason), "check the folder, its permissions and its space");
}

/// The file that a path leads to, through links.
std::string target_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

CLI::Validator finite_number(double least, double most) {
  const auto check = [=](std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value >= least && value <= most && std::isfinite(value)) return {};
    return fmt::format("\"{}\" is no number from {} to {}", text, least, most);
  };
  return {check, fmt::format("{} to {}", least, most)};
}

std::vector<std::string> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items = CLI::detail::split(text, ',');
  if (!text.empty() && text.back() == ',') items.emplace_back();  // which streams do not see
  for (const std::string& item : items) {
    if (item.empty()) throw CLI::ValidationError(option, fmt::format("\"{}\" has an empty item", text));
  }
  return items;
}

CLI::Option* add_list(CLI::App& command, const std::string& option, std::vector<std::string>& list, const std::string& about) {
  const auto take = [option, &list](const std::vector<std::string>& texts) {
    list.clear();
    for (const std::string& text : texts) {
      for (std::string& item : split_list(option, text)) list.push_back(std::move(item));
    }
  };
  return command.add_option_function<std::vector<std::string>>(option, take, about)->allow_extra_args(false);
}

OutputFile::OutputFile(const std::string& path) : path_(target_of(path)) {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (fs::is_directory(status)) refuse(path, "it is a directory");
  const bool exists = fs::exists(status);
  if (exists && ::access(path_.c_str(), W_OK) != 0) refuse(path, std::strerror(errno));
  open_path_ = exists && !fs::is_regular_file(status) ? path_ : fmt::format("{}.{}.tmp", path_, ::getpid());
  if (open_path_ == path_) return;
  if (!std::ofstream(open_path_)) refuse(path, std::strerror(errno));
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!kept_ && open_path_ != path_) fs::remove(open_path_, ignored);
}

void OutputFile::keep() {
  std::error_code error;
  if (open_path_ != path_) fs::rename(open_path_, path_, error);
  if (error) refuse(path_, error.message());
  kept_ = true;
}

void OutputFile::write(std::string_view text) {
  std::ofstream stream(open_path_, std::ios::binary);
  stream << text << std::flush;
  if (!stream) refuse(path_, "is the disk full?");
  keep();
}

}  // namespace sluice::cli
