#include <array>

#include "scripting/lua/functions.h"

namespace sluice {

namespace {

bool is_state(const Datum& datum) { return datum.kind == Datum::Kind::kHandle && datum.handle.kind == Handle::Kind::kState; }

/// cfill(value, axes): a state of one entry a page, and of `axes` if given, with its first value.
Value cfill(const Arguments& arguments, const Function&) {
  arguments.expect_at_most(2, "cfill(value, {\"dim\"})");
  const double value = arguments.number(0, "the value");
  Shape shape = arguments.has(1) ? arguments.shape(arguments.at(1), {}) : Shape{};
  if (has_axis(shape, Axis::kPage)) arguments.fail("\"page\" is there by itself", "name the other axes only");
  return {Value::Kind::kHandle, arguments.builder().declare_fill(value, std::move(shape)), 0};
}

/// load("name", {axes =, init =}) or c.name:load()
Value load(const Arguments& arguments, const Function&) {
  GraphBuilder& builder = arguments.builder();
  arguments.expect_at_most(2, "load(name, {axes = {\"page\"}, init = 0})");
  if (is_state(arguments.at(0))) return tensor_value(arguments, builder.load(arguments.at(0).handle.id));
  const std::string name = arguments.text(0, "the name of a state");
  Options options(arguments, arguments.at(1), "for example sluice.load(\"seen\", {axes = {\"page\"}, init = 0})");
  const Datum* axes = options.find("axes");
  std::optional<Shape> shape;
  if (axes) shape = arguments.shape(*axes, {});
  std::optional<double> initial;
  if (options.find("init")) initial = options.number("init", 0);
  options.finish();
  return tensor_value(arguments, builder.load(builder.state(name, shape, initial)));
}

/// save("name", x, {tail =}) or c.name:save(x, {tail =}); a name that is new declares a state of x's axes that begins as 0.
Value save(const Arguments& arguments, const Function&) {
  GraphBuilder& builder = arguments.builder();
  arguments.expect_at_most(3, "save(name, x), or save(name, x, {tail = 128}) for pages that leave the newest 128 tokens");
  Options options(arguments, arguments.at(2), "for example c.ksum:save(x, {tail = 128})");
  const int last = options.find("tail") == nullptr ? 0 : tail_pages(arguments, options, 1);
  options.finish();
  const Datum& target = arguments.at(0);
  const std::string name = is_state(target) ? std::string() : arguments.text(0, "the name of a state");
  const NodeId value = arguments.tensor(1);
  if (is_state(target)) {
    builder.save(target.handle.id, value, last);
  } else {
    const State* known = builder.graph().find_state(name);
    builder.save(builder.state(name, known ? known->shape : builder.shape_of(value), std::nullopt), value, last);
  }
  return {};
}

constexpr std::array kFunctions = {
    Function{"cfill", cfill, Op::kConstant, Compare::kEq, false},
    Function{"load", load},
    Function{"save", save},
};

}  // namespace

std::span<const Function> state_functions() { return kFunctions; }

}  // namespace sluice
