#include "scripting/lua/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "scripting/base/suggest.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"

namespace sluice {

namespace {

/// Why `whole_number` refuses a number.
std::string not_an_integer(std::string_view what, double value) {
  if (std::floor(value) == value) return fmt::format("{} = {} is too {}", what, value, value > 0 ? "large" : "small");
  return fmt::format("{} must be a whole number and is {}", what, value);
}

std::vector<std::string> axis_names() { return {"page", "token", "dim", "head", "sub"}; }

}  // namespace

std::optional<int> whole_number(double value) {
  if (std::floor(value) != value || std::abs(value) > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(value);
}

const Datum& Arguments::at(size_t i) const {
  static const Datum nothing;
  return i < values_.size() ? values_[i] : nothing;
}

void Arguments::fail(const std::string& message, std::string hint) const {
  builder_.fail(fmt::format("{}: {}", function_, message), std::move(hint));
}

void Arguments::expect_at_most(size_t count, std::string_view usage) const {
  if (size() > count)
    fail(fmt::format("got {} argument{} and wants at most {}", size(), size() == 1 ? "" : "s", count), std::string(usage));
}

NodeId Arguments::tensor(size_t i) const {
  const Datum& datum = at(i);
  if (datum.kind == Datum::Kind::kNumber) return builder_.constant(datum.number);
  if (datum.kind == Datum::Kind::kHandle) {
    const Handle& handle = datum.handle;
    if (handle.kind == Handle::Kind::kState) return builder_.load(handle.id);
    if (handle.kind == Handle::Kind::kMass) return builder_.emit(Op::kMass, {});
    if (handle.kind == Handle::Kind::kTensor) {
      if (handle.stage == builder_.stage()) return handle.id;
      fail(fmt::format("operand {} was computed in flow.{}", i + 1, name_of(handle.stage)),
           handle.stage == Stage::kCache ? "assign it to a field, c.NAME = x, in flow.cache and read c.NAME in flow.index"
                                         : "compute it in flow.after, too; a state takes a value to the next step");
    }
  }
  fail(fmt::format("operand {} must be a tensor or a number and is {}", i + 1, describe(i)));
}

GraphBuilder::Joined Arguments::joined(size_t i) const {
  const Datum& datum = at(i);
  if (datum.kind == Datum::Kind::kHandle) {
    if (const auto joined = builder_.joined(datum.handle)) return *joined;
  }
  fail(fmt::format("operand {} must be a selection and is {}", i + 1, describe(i)),
       "selections come from topk, approx_topk, threshold and window; sluice.pattern has tokens to go beside them");
}

const HeadPatterns& Arguments::pattern(size_t i) const { return pattern(at(i), fmt::format("operand {}", i + 1)); }

const HeadPatterns& Arguments::pattern(const Datum& datum, std::string_view what) const {
  if (datum.kind == Datum::Kind::kHandle && datum.handle.kind == Handle::Kind::kPattern) return builder_.pattern(datum.handle.id);
  fail(fmt::format("{} must be a pattern and is {}", what, sluice::describe(datum, builder_.graph())),
       "patterns are made by sluice.pattern, for example sluice.pattern.window(512)");
}

double Arguments::number(size_t i, std::string_view what) const {
  if (at(i).kind != Datum::Kind::kNumber) fail(fmt::format("{} must be a number and is {}", what, describe(i)));
  return at(i).number;
}

int Arguments::integer(size_t i, std::string_view what) const {
  const std::optional<int> value = whole_number(number(i, what));
  if (!value) fail(not_an_integer(what, at(i).number));
  return *value;
}

std::string Arguments::text(size_t i, std::string_view what) const {
  if (at(i).kind != Datum::Kind::kText) fail(fmt::format("{} must be a text and is {}", what, describe(i)));
  return at(i).text;
}

Axis Arguments::axis_of(const Datum& datum) const {
  if (datum.kind != Datum::Kind::kText) {
    fail(fmt::format("an axis is named by a text and got {}", sluice::describe(datum, builder_.graph())),
         "axes are \"page\", \"token\", \"dim\", \"head\" and \"sub\"");
  }
  const std::optional<Axis> axis = axis_from_name(datum.text);
  if (!axis) fail(fmt::format("no axis is called \"{:.40}\"", datum.text), did_you_mean(datum.text, axis_names()));
  return *axis;
}

Axis Arguments::axis(size_t i, std::optional<Axis> otherwise) const {
  if (!has(i) && otherwise) return *otherwise;
  if (!has(i)) fail("wants the name of an axis", "axes are \"page\", \"token\", \"dim\", \"head\" and \"sub\"");
  const Datum& datum = at(i);
  const bool is_option = datum.kind == Datum::Kind::kTable && datum.entries.size() == 1 && datum.entries[0].key.text == "axis";
  return axis_of(is_option ? datum.entries[0].value : datum);
}

std::vector<Axis> Arguments::axes_from(size_t i, const Shape& shape) const {
  std::vector<Axis> axes;
  for (; i < size(); ++i) {
    const bool is_operand = at(i).kind == Datum::Kind::kHandle || at(i).kind == Datum::Kind::kNumber;
    if (is_operand && (function_ == "max" || function_ == "min")) {
      fail(fmt::format("reduces one tensor over axes, and got {} as an axis", describe(i)),
           fmt::format("{}imum(a, b) takes two tensors", function_));
    }
    axes.push_back(axis(i));
  }
  if (axes.empty()) {
    fail(fmt::format("wants the axes to reduce (got {})", to_string(shape)),
         shape.empty() ? "a scalar has none" : fmt::format("for example x:{}(\"{}\")", function_, name_of(shape.back().axis)));
  }
  return axes;
}

Dimension Arguments::dimension_of(const Datum& name, const Datum* extent, const Shape& like) const {
  const Axis axis = axis_of(name);
  if (extent) {
    const std::optional<int> value = extent->kind == Datum::Kind::kNumber ? whole_number(extent->number) : std::nullopt;
    if (!value || *value < 1 || *value > GraphLimits::kElements) {
      fail(fmt::format("the extent of \"{}\" must be a whole number from 1 to {}", name_of(axis), GraphLimits::kElements));
    }
    return {axis, *value};
  }
  if (const int position = find_axis(like, axis); position >= 0) return like[static_cast<size_t>(position)];
  const Geometry& geometry = builder_.graph().geometry;
  switch (axis) {
    case Axis::kPage:
      return {axis, kDynamic};
    case Axis::kToken:
      return {axis, geometry.page};
    case Axis::kDim:
      return {axis, geometry.head_dim};
    case Axis::kHead:
      return {axis, geometry.group};
    case Axis::kSub:
      break;
  }
  fail("the extent of \"sub\" is not known", "give it: {\"sub\", 4}");
}

Shape Arguments::shape(const Datum& list, const Shape& like) const {
  if (list.kind != Datum::Kind::kTable) {
    fail(fmt::format("wants a list of axes and got {}", sluice::describe(list, builder_.graph())),
         "for example {\"page\", \"dim\"}");
  }
  Shape shape;
  for (const auto& [key, entry] : list.entries) {
    if (key.kind != Datum::Kind::kNumber) fail("the axes must be a list", "order matters: {\"page\", {\"sub\", 4}, \"dim\"}");
    if (entry.kind != Datum::Kind::kTable) {
      shape.push_back(dimension_of(entry, nullptr, like));
    } else if (entry.entries.size() == 2) {
      shape.push_back(dimension_of(entry.entries[0].value, &entry.entries[1].value, like));
    } else {
      fail("an axis with its extent is written {\"sub\", 4}");
    }
  }
  return shape;
}

std::vector<float> Arguments::kernel(size_t i) const {
  const Datum& list = at(i);
  if (list.kind != Datum::Kind::kTable)
    fail(fmt::format("the kernel must be a list of numbers and is {}", describe(i)), "for example {0.25, 0.5, 0.25}");
  std::vector<float> kernel;
  for (const auto& [key, entry] : list.entries) {
    if (key.kind != Datum::Kind::kNumber || entry.kind != Datum::Kind::kNumber) fail("the kernel must be a list of numbers");
    if (!(std::abs(entry.number) <= std::numeric_limits<float>::max())) fail("the kernel holds a number that is not finite");
    kernel.push_back(static_cast<float>(entry.number));
  }
  if (kernel.size() % 2 == 0 || kernel.size() > GraphLimits::kKernel) {
    fail(fmt::format("the kernel has {} numbers; an odd number up to {} is wanted", kernel.size(), GraphLimits::kKernel),
         kernel.size() < GraphLimits::kKernel ? "pad it with a zero" : "");
  }
  return kernel;
}

Options::Options(const Arguments& arguments, const Datum& table, std::string usage) : arguments_(arguments), table_(table) {
  if (table.kind != Datum::Kind::kTable && table.kind != Datum::Kind::kNil) {
    arguments.fail(fmt::format("wants a table of options and got {}", describe(table, arguments.builder().graph())),
                   std::move(usage));
  }
}

void Options::expect(std::initializer_list<const char*> names) {
  known_.assign(names.begin(), names.end());
  finish();
}

const Datum* Options::find(const std::string& name) {
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
  for (const auto& [key, value] : table_.entries) {
    if (key.kind == Datum::Kind::kText && key.text == name) return &value;
  }
  return nullptr;
}

int Options::integer(const std::string& name, int otherwise) {
  const Datum* datum = find(name);
  if (!datum) return otherwise;
  const bool is_number = datum->kind == Datum::Kind::kNumber;
  const std::optional<int> value = is_number ? whole_number(datum->number) : std::nullopt;
  if (!value && is_number) arguments_.fail(not_an_integer(name, datum->number));
  if (!value) {
    arguments_.fail(fmt::format("{} must be a whole number and is {}", name, describe(*datum, arguments_.builder().graph())));
  }
  return *value;
}

double Options::number(const std::string& name, double otherwise) {
  const Datum* datum = find(name);
  if (!datum) return otherwise;
  if (datum->kind != Datum::Kind::kNumber) {
    arguments_.fail(fmt::format("{} must be a number and is {}", name, describe(*datum, arguments_.builder().graph())));
  }
  return datum->number;
}

std::string Options::text(const std::string& name, const std::string& otherwise) {
  const Datum* datum = find(name);
  if (!datum) return otherwise;
  if (datum->kind != Datum::Kind::kText) {
    arguments_.fail(fmt::format("{} must be a text and is {}", name, describe(*datum, arguments_.builder().graph())));
  }
  return datum->text;
}

void Options::finish() const {
  for (const auto& [key, value] : table_.entries) {
    if (key.kind != Datum::Kind::kText)
      arguments_.fail("options have names", fmt::format("for example {{{} = ...}}", known_.front()));
    if (std::find(known_.begin(), known_.end(), key.text) == known_.end()) {
      arguments_.fail(fmt::format("no option is called \"{:.40}\"", key.text), did_you_mean(key.text, known_));
    }
  }
}

int tail_pages(const Arguments& arguments, Options& options, int otherwise) {
  const int tail = options.integer("tail", otherwise);
  if (tail < 1 || tail > Pattern::kMostNumber) {
    arguments.fail(fmt::format("tail = {} is not between 1 and 2^30 tokens", tail),
                   "the newest tokens are attended to as they are");
  }
  const int page = arguments.builder().graph().geometry.page;
  return std::min((tail - 1 + page - 1) / page + 1, static_cast<int>(GraphLimits::kPages));
}

}  // namespace sluice
