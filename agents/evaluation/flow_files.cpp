#include "agents/evaluation/flow_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "agents/tasks/task.h"
#include "scripting/base/error.h"
#include "scripting/base/program_data.h"

namespace sluice {
namespace fs = std::filesystem;

namespace {

constexpr std::array kFolders = {"patterns", "covers", "masses", "eviction", "recompute"};

/// For what a list written without commas leaves over, "--tasks salad trace" or "--tokens 1024 4096".
std::string hint_for(const std::string& flow) {
  const auto called_so = [&](const Task& task) { return task.name == flow; };
  if (flow.starts_with("jsonl:") || std::any_of(all_tasks().begin(), all_tasks().end(), called_so)) {
    return fmt::format("it is a task; separate those of a list with commas: --tasks needle_multivalue,{}", flow);
  }
  if (!flow.empty() && flow.find_first_not_of("0123456789") == std::string::npos) {
    return fmt::format("separate the numbers of a list with commas: --tokens 1024,{}", flow);
  }
  std::vector<std::string> shipped = shipped_flows();  // none where the program lies away from them
  for (const char* folder : kFolders) {
    const std::vector<std::string> more = shipped_flows(folder);
    shipped.insert(shipped.end(), more.begin(), more.end());
  }
  return fmt::format("give the path of a .lua file{}{}", shipped.empty() ? "" : ", or one of ", fmt::join(shipped, ", "));
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  if (directory.empty()) return names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".lua") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string shipped_flows_directory() { return find_program_data({"scripting/flows", "share/sluice/flows"}); }

std::vector<std::string> shipped_flows(const std::string& folder) {
  const std::string directory = shipped_flows_directory();
  return names_in(directory.empty() || folder.empty() ? directory : directory + "/" + folder);
}

std::string find_flow(const std::string& flow) {
  std::error_code error;
  if (fs::is_regular_file(flow, error)) return flow;
  const std::string shipped = shipped_flows_directory();
  std::vector<std::string> directories = {shipped};
  for (const char* folder : kFolders) directories.push_back(shipped + "/" + folder);
  for (const std::string& directory : directories) {
    if (shipped.empty() || flow.find('/') != std::string::npos) continue;
    for (const std::string& name : {flow, flow + ".lua"}) {
      const fs::path path = fs::path(directory) / name;
      if (path.extension() == ".lua" && fs::is_regular_file(path, error)) return path.string();
    }
  }
  if (fs::is_directory(flow, error)) throw InputError(fmt::format("{}: it is a directory, not a flow", flow));
  throw InputError(fmt::format("there is no flow \"{}\"", flow), hint_for(flow));
}

}  // namespace sluice
