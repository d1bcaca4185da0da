#pragma once

#include <string>
#include <vector>

namespace sluice::repl {

/// A function of the language as a reference shows it.
struct OperatorReference {
  std::string name;       // as scripts call it
  std::string signature;  // "sluice.max(x, axis, ...)"
  std::string stage;      // "cache", "index", "index and after", "cache, index and after", or empty: outside them
  std::string shape;      // "[axes] -> [axes without axis]", empty if it gives no tensor
  std::string summary;    // one line
};

/// All of them, from the language's table (scripting/graph/ops.h) and in its order, then those that are no single operator.
std::vector<OperatorReference> operator_references();

/// All operators by the stages that they belong to, from the language's table (scripting/graph/ops.h).
std::string operator_list();

/// Names, stages, shapes and meaning of the operator that scripts call `name`. Throws InputError that suggests one.
std::string operator_help(const std::string& name);

}  // namespace sluice::repl
