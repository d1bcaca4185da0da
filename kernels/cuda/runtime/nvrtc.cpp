#include "kernels/cuda/runtime/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nvrtc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "kernels/cuda/runtime/shared_library.h"
#include "scripting/base/error.h"

namespace sluice::cuda {

namespace {

constexpr const char* kProgramName = "flow.cu";
constexpr std::array<const char*, 7> kOptions = {
    "-std=c++20", "-default-device", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--disable-warnings",
};
constexpr const char* kInstallHint =
    "install NVRTC 12.0 or later (package cuda-nvrtc-13-0 of NVIDIA's repository, or a CUDA toolkit) and name the folder of "
    "libnvrtc.so in LD_LIBRARY_PATH, or use --device cpu";

/// The functions of NVRTC, which is loaded when first needed, so that the program starts without it. It stays loaded.
struct Nvrtc {
  decltype(&::nvrtcVersion) version;
  decltype(&::nvrtcGetErrorString) error_string;
  decltype(&::nvrtcCreateProgram) create_program;
  decltype(&::nvrtcDestroyProgram) destroy_program;
  decltype(&::nvrtcCompileProgram) compile_program;
  decltype(&::nvrtcGetProgramLogSize) log_size;
  decltype(&::nvrtcGetProgramLog) log;
  decltype(&::nvrtcGetCUBINSize) cubin_size;
  decltype(&::nvrtcGetCUBIN) cubin;
  int major = 0;
  int minor = 0;

  void check(nvrtcResult status, const char* what) const {
    if (status != NVRTC_SUCCESS) throw InternalError(fmt::format("{}: {}", what, error_string(status)));
  }
};

Nvrtc load_nvrtc() {
  const SharedLibrary library("NVRTC, which compiles flows for the GPU,", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
                              kInstallHint);
  Nvrtc nvrtc{};
  library.find("nvrtcVersion", nvrtc.version);
  library.find("nvrtcGetErrorString", nvrtc.error_string);
  library.find("nvrtcCreateProgram", nvrtc.create_program);
  library.find("nvrtcDestroyProgram", nvrtc.destroy_program);
  library.find("nvrtcCompileProgram", nvrtc.compile_program);
  library.find("nvrtcGetProgramLogSize", nvrtc.log_size);
  library.find("nvrtcGetProgramLog", nvrtc.log);
  library.find("nvrtcGetCUBINSize", nvrtc.cubin_size);
  library.find("nvrtcGetCUBIN", nvrtc.cubin);
  nvrtc.check(nvrtc.version(&nvrtc.major, &nvrtc.minor), "nvrtcVersion");
  if (nvrtc.major < 12) {
    throw InputError(fmt::format("NVRTC on this machine is too old: it is version {}.{}", nvrtc.major, nvrtc.minor),
                     kInstallHint);
  }
  return nvrtc;
}

const Nvrtc& nvrtc_library() {
  static const Nvrtc nvrtc = load_nvrtc();
  return nvrtc;
}

class Program {
 public:
  Program(const Nvrtc& nvrtc, const std::string& source) : nvrtc_(nvrtc) {
    nvrtc_.check(nvrtc_.create_program(&program_, source.c_str(), kProgramName, 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~Program() { nvrtc_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::string& architecture) {
    const std::string target = "--gpu-architecture=" + architecture;
    std::vector<const char*> options(kOptions.begin(), kOptions.end());
    options.push_back(target.c_str());
    return nvrtc_.compile_program(program_, static_cast<int>(options.size()), options.data());
  }

  std::string log() const {
    size_t size = 0;
    if (nvrtc_.log_size(program_, &size) != NVRTC_SUCCESS) return {};
    std::string text(size, '\0');
    if (size > 0 && nvrtc_.log(program_, text.data()) != NVRTC_SUCCESS) return {};
    text.resize(std::min(text.find('\0'), text.size()));
    return text;
  }

  std::vector<std::byte> cubin() const {
    size_t size = 0;
    nvrtc_.check(nvrtc_.cubin_size(program_, &size), "nvrtcGetCUBINSize");
    if (size == 0) throw InternalError("NVRTC gave an empty cubin");
    std::vector<std::byte> cubin(size);
    nvrtc_.check(nvrtc_.cubin(program_, reinterpret_cast<char*>(cubin.data())), "nvrtcGetCUBIN");
    return cubin;
  }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\f\v";
  const size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// The lines of a text, trimmed.
std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(trim(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string shorten(std::string_view text) {
  constexpr size_t kLongest = 400;
  return text.size() <= kLongest ? std::string(text) : std::string(text.substr(0, kLongest)) + "...";
}

/// The 1-based line of the source in "flow.cu(7): error: ...".
std::optional<size_t> line_of_error(std::string_view error) {
  const std::string prefix = std::string(kProgramName) + "(";
  if (!error.starts_with(prefix)) return std::nullopt;
  error.remove_prefix(prefix.size());
  size_t line = 0;
  const auto [end, status] = std::from_chars(error.data(), error.data() + error.size(), line);
  const bool closed = end != error.data() + error.size() && *end == ')';
  return status == std::errc() && closed && line > 0 ? std::optional(line) : std::nullopt;
}

/// An error in the source where there is one, else any line about an error (ptxas and the options have no line), else any line.
std::string_view first_error(const std::vector<std::string_view>& log) {
  const auto is_error = [](std::string_view line) { return line.find("error") != std::string_view::npos; };
  const auto in_source = [&](std::string_view line) { return is_error(line) && line_of_error(line); };
  auto found = std::find_if(log.begin(), log.end(), in_source);
  if (found == log.end()) found = std::find_if(log.begin(), log.end(), is_error);
  if (found == log.end()) found = std::find_if(log.begin(), log.end(), [](std::string_view line) { return !line.empty(); });
  return found == log.end() ? std::string_view() : *found;
}

/// What the generator says of the operator that the line before `end` (0-based) came from: the nearest comment "// %7 ..." above
/// it or, if that does not end in a place of the script, "(flow.lua:9)", the one of the same operator that does.
std::string_view operator_above(const std::vector<std::string_view>& lines, size_t end) {
  constexpr std::string_view kComment = "// %";
  const auto is_comment = [&](std::string_view line) { return line.starts_with(kComment); };
  const auto number_of = [&](std::string_view comment) { return comment.substr(0, comment.find(' ', kComment.size())); };
  const auto above = std::make_reverse_iterator(lines.begin() + static_cast<ptrdiff_t>(end));
  const auto nearest = std::find_if(above, lines.rend(), is_comment);
  if (nearest == lines.rend()) return {};
  const auto placed = std::find_if(lines.begin(), lines.end(), [&](std::string_view line) {
    return is_comment(line) && number_of(line) == number_of(*nearest) && line.ends_with(')');
  });
  return nearest->ends_with(')') || placed == lines.end() ? *nearest : *placed;
}

}  // namespace

std::string explain_compile_log(std::string_view source, std::string_view log) {
  const std::string_view error = first_error(split_lines(log));
  std::string text = error.empty() ? "NVRTC gave no reason" : shorten(error);
  const std::optional<size_t> line = line_of_error(error);
  const std::vector<std::string_view> lines = split_lines(source);
  if (!line || *line > lines.size()) return text;
  text += fmt::format("\n  line {}: {}", *line, shorten(lines[*line - 1]));
  const std::string_view comment = operator_above(lines, *line - 1);
  if (!comment.empty()) text += "\n  operator: " + shorten(comment.substr(std::string_view("// ").size()));
  return text;
}

std::vector<std::byte> compile_to_cubin(const std::string& source, const std::string& architecture) {
  if (source.find('\0') != std::string::npos) throw InternalError("the source of a flow's kernels has a zero byte");
  const Nvrtc& nvrtc = nvrtc_library();
  Program program(nvrtc, source);
  const nvrtcResult status = program.compile(architecture);
  if (status == NVRTC_SUCCESS) return program.cubin();
  std::string log = program.log();
  if (trim(log).empty()) log = nvrtc.error_string(status);
  const std::string why = explain_compile_log(source, log);
  // What it says when its second library, libnvrtc-builtins, is not beside it.
  if (status == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE) throw InputError("NVRTC is not whole: " + why, kInstallHint);
  throw InternalError(fmt::format("a flow's kernels do not compile for {}: {}", architecture, why));
}

std::string nvrtc_version() {
  const Nvrtc& nvrtc = nvrtc_library();
  return fmt::format("{}.{}", nvrtc.major, nvrtc.minor);
}

std::string nvrtc_options() { return fmt::format("{}", fmt::join(kOptions, " ")); }

}  // namespace sluice::cuda
