#include "host/weights/model_name.h"

#include <fmt/format.h>

#include <filesystem>

#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace sluice {

std::string model_name(const std::string& directory) {
  if (directory.empty()) return {};
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (valid_utf8(name) != name) {
    throw InputError(fmt::format("the model directory \"{}\" has a name that is no UTF-8", directory),
                     "documents tell a model's name: rename the directory, or name a link to it");
  }
  return name;
}

}  // namespace sluice
