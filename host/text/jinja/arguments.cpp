#include "host/text/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::jinja {

Given::Given(Run& run, std::string_view callee, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t required)
    : run_(run), callee_(callee), names_(names), values_(names.size(), nullptr) {
  if (arguments.values.size() > names.size()) {
    run.fail(fmt::format("{} takes {} arguments, not {}", callee, names.size(), arguments.values.size()));
  }
  for (size_t i = 0; i < arguments.values.size(); ++i) values_[i] = &arguments.values[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    if (place == names_.size()) run.fail(fmt::format("{} takes no argument \"{}\"", callee, name));
    if (values_[place] != nullptr) run.fail(fmt::format("{} is given \"{}\" twice", callee, name));
    values_[place] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) run.fail(fmt::format("{} needs the argument \"{}\"", callee, names_[i]));
  }
}

bool Given::has(size_t place) const { return values_[place] != nullptr && !is_none(*values_[place]); }

std::string_view Given::text(size_t place, std::string_view otherwise) const {
  if (!has(place)) return otherwise;
  if (const std::string_view* text = as_text(at(place))) return *text;
  run_.fail(fmt::format("{}: \"{}\" is a {}, not a text", callee_, names_[place], type_of(at(place))));
}

int64_t Given::integer(size_t place, int64_t otherwise) const {
  if (!has(place)) return otherwise;
  int64_t truth = 0;
  if (const int64_t* number = as_integer(at(place), truth)) return *number;
  run_.fail(fmt::format("{}: \"{}\" is a {}, not an integer", callee_, names_[place], type_of(at(place))));
}

bool Given::boolean(size_t place, bool otherwise) const { return values_[place] == nullptr ? otherwise : truth(at(place)); }

}  // namespace sluice::jinja
