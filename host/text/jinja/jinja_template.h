#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "host/text/jinja/syntax.h"

namespace sluice {

/// A template in Jinja, as chat templates of Hugging Face's models use it: rendered as transformers does, in an immutable sandbox
/// and with trim_blocks, lstrip_blocks and loopcontrols. It may be rendered by several threads at once.
///
/// What is not there is refused by its name and line: include, import, extends, block, do, recursive loops, arguments with **,
/// and filters that no chat needs. Integers have 64 bits. A template is data from outside: its size, its nesting, and the steps
/// and bytes of a rendering have limits.
class JinjaTemplate {
 public:
  /// `name` is what messages call it. Throws InputError "NAME:LINE: ..." for a template that is not right.
  JinjaTemplate(std::string_view source, std::string name);

  /// `variables` is an object. Throws InputError "NAME:LINE: ..." for what goes wrong, what `raise_exception` says, and for a
  /// template that takes too long or too much memory.
  /// `now` is the time that the template sees, in UTC; the clock's without it.
  std::string render(const nlohmann::ordered_json& variables, std::optional<std::time_t> now = {}) const;
  /// Whether the name stands anywhere in the template as that of a variable.
  bool has_variable(const std::string& name) const { return variables_.contains(name); }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::string name_;
  std::set<std::string> variables_;
  jinja::Body body_;
};

}  // namespace sluice
