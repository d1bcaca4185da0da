#include "agents/client/export.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "scripting/base/error.h"
#include "scripting/base/iso_time.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string pretty(const ordered_json& document) {
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text << std::flush;
  if (!stream) throw InputError(fmt::format("{} cannot be written", path.string()), "check its folder, permissions and space");
}

}  // namespace

void export_submission(const json& submission, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw InputError(fmt::format("{} cannot be made: {}", folder.string(), error.message()));
  ordered_json about;
  const JsonObject members(submission, "the submission");
  for (const char* name : {"id", "agent", "name", "notes", "parents", "content_hash"}) about[name] = members.at(name);
  const auto created = microseconds_of(members.text("created"));
  if (!created) throw InputError(fmt::format("the server tells a time that is none: \"{:.40}\"", members.text("created")));
  about["created"] = *created;  // as the repository has it
  write(folder / "flow.lua", members.text("script"));
  write(folder / "settings.json", pretty(members.at("settings")));
  write(folder / "submission.json", pretty(about));
  if (const json* evaluation = members.find("evaluation")) write(folder / "evaluation.json", pretty(*evaluation));
}

}  // namespace sluice
