#pragma once

#include <string>

namespace sluice::repl {

/// All operators by the stages that they belong to, from the language's table (scripting/graph/ops.h).
std::string operator_list();

/// Names, stages, shapes and meaning of the operator that scripts call `name`. Throws InputError that suggests one.
std::string operator_help(const std::string& name);

}  // namespace sluice::repl
