#include "host/weights/default_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "scripting/base/error.h"
#include "scripting/base/unicode.h"

namespace sluice {

std::string default_model() {
  namespace fs = std::filesystem;
  if (const char* named = std::getenv("SLUICE_MODEL"); named != nullptr && *named != '\0') {
    if (valid_utf8(named) == named) return named;
    throw InputError(fmt::format("SLUICE_MODEL names \"{}\", which is no UTF-8", named), "rename it, or name a link to it");
  }

  std::vector<std::string> places = {"host/models/mini"};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path beside = program.parent_path().parent_path();
    places.push_back((beside / "host/models/mini").string());
    places.push_back((beside / "share/sluice/models/mini").string());
  }
  for (const std::string& place : places) {
    if (fs::exists(fs::path(place) / "config.json", error)) return place;
  }
  throw InputError(fmt::format("no model was given, and the mini model is in none of {}", fmt::join(places, ", ")),
                   "name a model with --model or the environment variable SLUICE_MODEL");
}

}  // namespace sluice
