#pragma once

#include <compare>
#include <span>
#include <string>
#include <string_view>

#include "host/text/jinja/run.h"
#include "host/text/jinja/value.h"

namespace sluice::jinja {

/// What Python's operators and built-in functions do. All count what they cost in the `Run`, and throw Fault for operands that
/// Python refuses.

/// str(): what `{{ value }}` prints.
void write_text(Writer& writer, const Value& value);
/// repr(): how a value looks inside a list.
void write_repr(Writer& writer, const Value& value);
/// str() as a view: that of a text is itself.
std::string_view text_of(Run& run, const Value& value);
/// repr() of a float: the shortest text that reads back as the same.
std::string float_text(double number);

bool equal(Run& run, const Value& left, const Value& right);
/// Unordered for NaN alone.
std::partial_ordering compare(Run& run, const Value& left, const Value& right);
/// `left in right`.
bool contains(Run& run, const Value& right, const Value& left);

/// What a loop over `value` goes through; a generator is spent by it.
std::span<const Value> iterate(Run& run, const Value& value);
/// len(): characters, items.
int64_t length(Run& run, const Value& value);
/// The value under `key`; null if there is none.
const Value* find(Run& run, const Dict& dict, const Value& key);

/// `value.name`: a method, or the item of that name.
Value attribute(Run& run, const Value& value, std::string_view name);
/// `value[key]`: the item, or the method of that name.
Value item(Run& run, const Value& value, const Value& key);
/// `value[begin:end:step]`; None for what is left out.
Value slice(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step);

/// `operation` is one of + - * / // % ** ~.
Value arithmetic(Run& run, std::string_view operation, const Value& left, const Value& right);
/// `operation` is one of == != < <= > >= in, not in.
bool holds(Run& run, std::string_view operation, const Value& left, const Value& right);
/// `operation` is + or -.
Value signed_value(Run& run, std::string_view operation, const Value& value);

}  // namespace sluice::jinja
