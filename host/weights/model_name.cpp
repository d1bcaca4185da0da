#include "host/weights/model_name.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace sluice {

std::string model_name(const std::string& model) {
  constexpr std::string_view kSuffix = ".gguf";
  if (model.empty()) return {};
  const std::filesystem::path path = std::filesystem::absolute(model).lexically_normal();
  std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (valid_utf8(name) != name) {
    throw InputError(fmt::format("the model \"{}\" has a name that is no UTF-8", model),
                     "documents tell a model's name: rename it, or name a link to it");
  }
  if (name.ends_with(kSuffix) && name.size() > kSuffix.size()) name.resize(name.size() - kSuffix.size());
  return name;
}

}  // namespace sluice
