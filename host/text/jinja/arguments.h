#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "host/text/jinja/run.h"

namespace sluice::jinja {

/// Arguments of a call, by the names of what it takes.
class Given {
 public:
  /// `required`: of `names` the first ones that must be given. Throws Fault for arguments that `callee` does not take.
  Given(Run& run, std::string_view callee, const Arguments& arguments, std::initializer_list<std::string_view> names,
        size_t required = 0);

  /// Null if it was left out.
  const Value* find(size_t place) const { return values_[place]; }
  const Value& at(size_t place) const { return *values_[place]; }
  /// The same as text, integer or boolean, or what stands for one that was left out (or is None).
  std::string_view text(size_t place, std::string_view otherwise = {}) const;
  int64_t integer(size_t place, int64_t otherwise) const;
  bool boolean(size_t place, bool otherwise) const;
  bool has(size_t place) const;

 private:
  Run& run_;
  std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace sluice::jinja
