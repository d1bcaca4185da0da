#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/lua/arguments.h"

namespace sluice {

/// A function of `sluice.`; most are methods of tensors too.
struct Function {
  std::string_view name;
  Value (*run)(const Arguments& arguments, const Function& self);
  Op op = Op::kConstant;           // for those that differ in nothing else
  Compare compare = Compare::kEq;  // for where_*
  bool is_method = true;
};

/// Every function, in the order of the reference. Defined in functions.cpp from the parts below.
const std::vector<Function>& functions();
/// The function called `name`, or null.
const Function* find_function(std::string_view name);
/// Names, for suggestions.
std::vector<std::string> function_names(bool methods_only);
std::vector<std::string> pattern_function_names();

/// A Lua operator between patterns.
struct PatternOperator {
  const char* name = nullptr;  // of the metamethod
  Function function;
};

/// Functions of `sluice.pattern.`; those on patterns are methods of them, too. Defined in patterns.cpp.
std::span<const Function> pattern_functions();
std::span<const PatternOperator> pattern_operators();

// Parts of the list, by file.
std::span<const Function> operator_functions();   // operators.cpp
std::span<const Function> selection_functions();  // selections.cpp
std::span<const Function> state_functions();      // states.cpp
std::span<const Function> eviction_functions();   // eviction.cpp
std::span<const Function> flow_functions();       // flow_options.cpp
std::span<const Function> parameter_functions();  // parameters.cpp

inline Value tensor_value(const Arguments& arguments, NodeId id) {
  return {Value::Kind::kHandle, arguments.builder().tensor(id), 0};
}

}  // namespace sluice
