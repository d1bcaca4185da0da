#include "agents/evaluation/flow_script.h"

#include <filesystem>

#include "agents/evaluation/flow_files.h"
#include "scripting/base/input_text.h"

namespace sluice {

FlowScript read_flow(const std::string& flow) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(flow, error);
  const bool stream = flow == "-" || std::filesystem::is_fifo(status) || std::filesystem::is_character_file(status);
  const std::string path = stream ? flow : find_flow(flow);
  return {name_of_input(path), read_input(path, kLargestSource)};
}

}  // namespace sluice
