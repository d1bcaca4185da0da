#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "host/text/jinja/value.h"

namespace sluice::jinja {

class Run;

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string_view, Value>> named;
};

/// What is neither data nor text: functions, macros, `loop`, namespaces. It belongs to the rendering.
class Object {
 public:
  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  virtual std::string_view type() const = 0;
  /// Undefined where there is none.
  virtual Value attribute(Run& run, std::string_view name);
  virtual bool is_callable() const { return false; }
  virtual Value call(Run& run, const Arguments& arguments);
};

/// A function of ours.
class Function final : public Object {
 public:
  using Body = Value (*)(Run&, const Arguments&);
  explicit Function(Body body) : body_(body) {}
  std::string_view type() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, const Arguments& arguments) override { return body_(run, arguments); }

 private:
  Body body_;
};

/// `namespace(...)`: the one value with attributes that may be set.
class Namespace final : public Object {
 public:
  std::string_view type() const override { return "namespace"; }
  Value attribute(Run& run, std::string_view name) override;
  void set(Run& run, std::string_view name, const Value& value);

 private:
  std::vector<std::pair<std::string_view, Value>> members_;
};

}  // namespace sluice::jinja
