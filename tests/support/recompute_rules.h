#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/device/recompute_rule.h"
#include "scripting/lua/trace.h"
#include "tests/support/source_path.h"

namespace sluice::testing {

/// A rule of a script, for a model of `heads` query heads.
inline std::shared_ptr<const RecomputeRule> rule_of(const std::string& source, int heads) {
  return make_recompute_rule(trace(source, "rule.lua", {.head_dim = 8, .group = 1, .heads = heads}).recompute);
}

/// A shipped rule, with what its parameters are set to.
inline std::shared_ptr<const RecomputeRule> shipped_rule(const std::string& name, int heads, ParameterValues values = {}) {
  const std::string file = source_path("scripting/flows/recompute/" + name + ".lua").string();
  return make_recompute_rule(
      trace_file(file, {.head_dim = 8, .group = 1, .heads = heads, .parameters = std::move(values)}).recompute);
}

}  // namespace sluice::testing
