#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/methods.h"
#include "host/text/jinja/operations.h"
#include "scripting/base/printable_text.h"

namespace sluice::jinja {
namespace {

constexpr int64_t kWidest = 1 << 16;

/// One conversion of a % format: %[flags][width][.precision]letter.
struct Conversion {
  std::string flags;
  int64_t width = 0;
  int64_t precision = -1;
  char letter = 0;
};

int64_t read_digits(const Run& run, std::string_view& rest) {
  int64_t number = 0;
  for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; rest.remove_prefix(1)) {
    number = number * 10 + (rest.front() - '0');
    if (number > kWidest) run.fail("a width in a format is too large");
  }
  return number;
}

/// Reads from behind the %.
Conversion read_conversion(const Run& run, std::string_view& rest) {
  Conversion conversion;
  for (; !rest.empty() && std::string_view("-0+ ").find(rest.front()) != std::string_view::npos; rest.remove_prefix(1)) {
    conversion.flags += rest.front();
  }
  conversion.width = read_digits(run, rest);
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    conversion.precision = read_digits(run, rest);
  }
  if (rest.empty()) run.fail("a format ends after %");
  conversion.letter = rest.front();
  rest.remove_prefix(1);
  return conversion;
}

double as_double(const Run& run, const Value& value) {
  int64_t place = 0;
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const int64_t* number = as_integer(value, place)) return static_cast<double>(*number);
  run.fail(fmt::format("a format wants a number, not a {}", type_of(value)));
}

std::string converted(Run& run, const Conversion& conversion, const Value& value) {
  const bool plus = conversion.flags.find('+') != std::string::npos;
  const auto signed_text = [&](const std::string& text) { return plus && !text.starts_with('-') ? "+" + text : text; };
  const int precision = conversion.precision < 0 ? 6 : static_cast<int>(conversion.precision);
  int64_t place = 0;
  switch (conversion.letter) {
    case 's':
    case 'r': {
      Writer writer(run);
      conversion.letter == 's' ? write_text(writer, value) : write_repr(writer, value);
      const std::string text = writer.take();
      return conversion.precision < 0 ? text : text.substr(0, byte_of_character(text, static_cast<size_t>(conversion.precision)));
    }
    case 'd':
    case 'i':
    case 'u':
      if (const int64_t* number = as_integer(value, place)) return signed_text(std::to_string(*number));
      return signed_text(fmt::format("{:.0f}", std::trunc(as_double(run, value))));
    case 'x':
      if (const int64_t* number = as_integer(value, place)) return signed_text(fmt::format("{:x}", *number));
      run.fail("%x wants an integer");
    case 'f':
      return signed_text(fmt::format("{:.{}f}", as_double(run, value), precision));
    case 'g':
      return signed_text(fmt::format("{:.{}g}", as_double(run, value), precision));
    case 'e':
      return signed_text(fmt::format("{:.{}e}", as_double(run, value), precision));
    default:
      run.fail(fmt::format("a format with %{} is not supported", printable(std::string(1, conversion.letter))));
  }
}

}  // namespace

Value percent_format(Run& run, std::string_view format, const Value& value) {
  run.walk(format.size());
  const List* tuple = as_list(value);
  const bool is_tuple = tuple != nullptr && tuple->kind == List::Kind::kTuple;
  const std::span<const Value> values = is_tuple ? std::span<const Value>(tuple->items) : std::span(&value, 1);
  size_t used = 0;
  Writer writer(run);
  for (size_t at = format.find('%'); at != std::string::npos; at = format.find('%')) {
    writer.add(format.substr(0, at));
    format.remove_prefix(at + 1);
    if (format.starts_with('%')) {
      writer.add("%");
      format.remove_prefix(1);
      continue;
    }
    const Conversion conversion = read_conversion(run, format);
    if (used == values.size()) run.fail("a format has more places than values");
    const std::string text = converted(run, conversion, values[used++]);
    const auto characters = static_cast<int64_t>(count_characters(text));
    const auto padding = static_cast<size_t>(std::max<int64_t>(0, conversion.width - characters));
    const bool left = conversion.flags.find('-') != std::string::npos;
    const bool zeros =
        !left && conversion.flags.find('0') != std::string::npos && conversion.letter != 's' && conversion.letter != 'r';
    const bool sign_first = zeros && (text.starts_with('-') || text.starts_with('+'));
    if (sign_first) writer.add(text.substr(0, 1));
    if (!left) writer.add(padding, zeros ? '0' : ' ');
    writer.add(sign_first ? std::string_view(text).substr(1) : std::string_view(text));
    if (left) writer.add(padding, ' ');
  }
  const bool may_be_left = !is_tuple && (as_dict(value) != nullptr || as_list(value) != nullptr || is_undefined(value));
  if (used < values.size() && !may_be_left) run.fail("a format has fewer places than values");
  writer.add(format);
  return writer.done();
}

Value brace_format(Run& run, std::string_view format, const Arguments& arguments) {
  run.walk(format.size());
  size_t next = 0;
  Writer writer(run);
  for (size_t at = format.find_first_of("{}"); at != std::string::npos; at = format.find_first_of("{}")) {
    writer.add(format.substr(0, at));
    const char brace = format[at];
    format.remove_prefix(at + 1);
    if (format.starts_with(brace)) {
      writer.add(1, brace);
      format.remove_prefix(1);
      continue;
    }
    const size_t end = brace == '{' ? format.find('}') : std::string::npos;
    if (end == std::string::npos) run.fail("format: a brace is alone");
    const std::string_view field = format.substr(0, end);
    format.remove_prefix(end + 1);
    if (field.find_first_of("!:.[{") != std::string::npos) run.fail("format: only {}, {0} and {name} are supported");
    const bool is_number = field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6;
    if (is_number) {
      const size_t place = field.empty() ? next++ : std::stoul(std::string(field));
      if (place >= arguments.values.size()) run.fail("format: a place has no value");
      write_text(writer, arguments.values[place]);
      continue;
    }
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& pair) { return pair.first == field; });
    if (named == arguments.named.end()) run.fail("format: a name has no value");
    write_text(writer, named->second);
  }
  writer.add(format);
  return writer.done();
}

}  // namespace sluice::jinja
