#include "host/text/jinja/object.h"

#include <fmt/format.h>

#include <algorithm>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

Value Object::attribute(Run&, std::string_view name) { return Undefined{name}; }

Value Object::call(Run& run, const Arguments&) { run.fail(fmt::format("a {} cannot be called", type())); }

Value Namespace::attribute(Run& run, std::string_view name) {
  run.step(1 + members_.size() / 4);
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& member) { return member.first == name; });
  return found == members_.end() ? Value(Undefined{name}) : found->second;
}

void Namespace::set(Run& run, std::string_view name, const Value& value) {
  run.step(1 + members_.size() / 4);
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& member) { return member.first == name; });
  if (found != members_.end()) {
    found->second = value;
    return;
  }
  run.charge(sizeof(members_.front()) * 2);
  members_.emplace_back(name, value);
}

}  // namespace sluice::jinja
