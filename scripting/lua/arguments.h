#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/lua/builder.h"

namespace sluice {

/// The arguments of one call, read with errors that name the function and what it wants. Positions count from 0.
class Arguments {
 public:
  Arguments(GraphBuilder& builder, std::string_view function, const std::vector<Datum>& values)
      : builder_(builder), function_(function), values_(values) {}

  GraphBuilder& builder() const { return builder_; }
  size_t size() const { return values_.size(); }
  const Datum& at(size_t i) const;
  bool has(size_t i) const { return at(i).kind != Datum::Kind::kNil; }
  /// Refuses arguments beyond the first `count`.
  void expect_at_most(size_t count, std::string_view usage) const;

  /// A tensor of the current stage; numbers become constants and states are loaded.
  NodeId tensor(size_t i) const;
  /// A selection, a pattern, or both together.
  GraphBuilder::Joined joined(size_t i) const;
  const HeadPatterns& pattern(size_t i) const;
  const HeadPatterns& pattern(const Datum& datum, std::string_view what) const;
  double number(size_t i, std::string_view what) const;
  int integer(size_t i, std::string_view what) const;
  std::string text(size_t i, std::string_view what) const;
  Axis axis(size_t i, std::optional<Axis> otherwise = std::nullopt) const;
  /// All axes from argument `i` on, of a tensor of shape `shape`; at least one.
  std::vector<Axis> axes_from(size_t i, const Shape& shape) const;
  /// A list of axes: "dim", or {"sub", 4} for an extent of one's own. Extents default to `like`'s, then to the geometry's.
  Shape shape(const Datum& list, const Shape& like) const;
  std::vector<float> kernel(size_t i) const;

  [[noreturn]] void fail(const std::string& message, std::string hint = {}) const;
  std::string describe(size_t i) const { return sluice::describe(at(i), builder_.graph()); }

 private:
  Axis axis_of(const Datum& datum) const;
  Dimension dimension_of(const Datum& name, const Datum* extent, const Shape& like) const;

  GraphBuilder& builder_;
  std::string_view function_;
  const std::vector<Datum>& values_;
};

/// A table of named options. Every option is asked for once; `finish` refuses what was not, if `expect` has not before.
class Options {
 public:
  /// `table` may be nil: no options. `usage` is the hint when it is something else.
  Options(const Arguments& arguments, const Datum& table, std::string usage);

  /// Refuses whatever has none of these names: before an option that must be there is missed, as its name may be misspelt.
  void expect(std::initializer_list<const char*> names);
  /// The option's value, or null.
  const Datum* find(const std::string& name);
  int integer(const std::string& name, int otherwise);
  double number(const std::string& name, double otherwise);
  std::string text(const std::string& name, const std::string& otherwise);
  void finish() const;

 private:
  const Arguments& arguments_;
  const Datum& table_;
  std::vector<std::string> known_;
};

/// The option "tail" in pages: those that have the last so many tokens, wherever in its page the newest lies; at least one.
int tail_pages(const Arguments& arguments, Options& options, int otherwise);

/// `value` as an int, if it is a whole number that fits.
std::optional<int> whole_number(double value);

}  // namespace sluice
