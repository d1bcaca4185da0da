#include "scripting/lua/functions.h"

#include <algorithm>

namespace sluice {

const std::vector<Function>& functions() {
  static const std::vector<Function> all = [] {
    std::vector<Function> list;
    for (const auto part : {operator_functions(), selection_functions(), state_functions(), eviction_functions(),
                            flow_functions(), parameter_functions()}) {
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

const Function* find_function(std::string_view name) {
  const auto found = std::find_if(functions().begin(), functions().end(), [name](const Function& f) { return f.name == name; });
  return found == functions().end() ? nullptr : &*found;
}

std::vector<std::string> pattern_function_names() {
  std::vector<std::string> names;
  for (const Function& function : pattern_functions()) names.emplace_back(function.name);
  return names;
}

std::vector<std::string> function_names(bool methods_only) {
  std::vector<std::string> names;
  for (const Function& function : functions()) {
    if (function.is_method || !methods_only) names.emplace_back(function.name);
  }
  return names;
}

}  // namespace sluice
