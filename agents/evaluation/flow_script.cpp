#include "agents/evaluation/flow_script.h"

#include <fmt/format.h>

#include <filesystem>

#include "agents/evaluation/flow_files.h"
#include "scripting/base/input_text.h"

namespace sluice {

FlowReference parse_flow_reference(const std::string& text) {
  std::error_code error;
  const size_t open = text.find('[');
  if (open == std::string::npos || !text.ends_with(']') || std::filesystem::exists(text, error)) return {text, {}};
  FlowReference reference{text.substr(0, open), {}};
  constexpr const char* kUsage = "FLOW[NAME=VALUE,NAME=VALUE], as its sluice.parameter calls name them";
  std::string_view rest = std::string_view(text).substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view setting = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw InputError(fmt::format("{}: \"{}\" sets nothing", text, setting), kUsage);
    const std::string name(setting.substr(0, equals));
    const std::string value(setting.substr(equals + 1));
    if (name.size() > ParameterLimits::kNameLength || value.size() > ParameterLimits::kTextLength)
      throw InputError(fmt::format("{:.80}: a name or a value is too long", text), kUsage);
    if (!reference.parameters.emplace(name, value).second)
      throw InputError(fmt::format("{}: \"{}\" is set twice", text, name), kUsage);
    if (reference.parameters.size() > ParameterLimits::kNumber)
      throw InputError(fmt::format("{:.80}: more than {} parameters", text, ParameterLimits::kNumber), kUsage);
  }
  return reference;
}

FlowScript read_flow(const std::string& flow) {
  FlowReference reference = parse_flow_reference(flow);
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(reference.flow, error);
  const bool stream = reference.flow == "-" || std::filesystem::is_fifo(status) || std::filesystem::is_character_file(status);
  const std::string path = stream ? reference.flow : find_flow(reference.flow);
  return {name_of_input(path), read_input(path, kLargestSource), std::move(reference.parameters)};
}

FlowScript read_flow_as_written(const std::string& flow) {
  FlowScript script = read_flow(flow);
  if (script.parameters.empty()) return script;
  throw InputError(fmt::format("{:.80}: here a flow is taken as it is written, with its parameters' own values", flow),
                   "write the values into its sluice.parameter calls");
}

}  // namespace sluice
