#pragma once

#include <span>

#include "host/text/jinja/object.h"

namespace sluice::jinja {

/// The variable `loop` within {% for %}.
class Loop final : public Object {
 public:
  explicit Loop(std::span<const Value> items) : items_(items) {}
  std::string_view type() const override { return "loop"; }
  Value attribute(Run& run, std::string_view name) override;
  void go_to(size_t index) { index_ = index; }
  size_t index() const { return index_; }
  /// `loop.changed(...)`: whether it is called with other values than before.
  bool changed(Run& run, const Arguments& arguments);

 private:
  std::span<const Value> items_;
  size_t index_ = 0;
  bool was_asked_ = false;
  std::vector<Value> last_;
};

}  // namespace sluice::jinja
