#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "host/text/jinja/characters.h"
#include "host/text/jinja/operations.h"
#include "scripting/base/unicode.h"

namespace sluice::jinja {
namespace {

/// repr() of a str: in single quotes, unless it holds those alone.
void write_quoted(Writer& writer, std::string_view text) {
  writer.run().walk(text.size());
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  writer.add(1, quote);
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    size = character_length(text, at);
    const char32_t character = character_at(text, at);
    if (character == static_cast<char32_t>(quote) || character == '\\') {
      writer.add(1, '\\');
      writer.add(text.substr(at, size));
    } else if (character == '\n') {
      writer.add("\\n");
    } else if (character == '\r') {
      writer.add("\\r");
    } else if (character == '\t') {
      writer.add("\\t");
    } else if (is_printable(character)) {
      writer.add(text.substr(at, size));
    } else if (character < 0x100) {
      writer.add(fmt::format("\\x{:02x}", static_cast<uint32_t>(character)));
    } else if (character < 0x10000) {
      writer.add(fmt::format("\\u{:04x}", static_cast<uint32_t>(character)));
    } else {
      writer.add(fmt::format("\\U{:08x}", static_cast<uint32_t>(character)));
    }
  }
  writer.add(1, quote);
}

void write_list(Writer& writer, const List& list) {
  if (list.kind != List::Kind::kList && list.kind != List::Kind::kTuple) {
    writer.run().fail(fmt::format("a {} has no text; make a list of it", type_of(&list)));
  }
  const bool is_tuple = list.kind == List::Kind::kTuple;
  writer.add(is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) writer.add(", ");
    write_repr(writer, list.items[i]);
  }
  if (is_tuple && list.items.size() == 1) writer.add(",");
  writer.add(is_tuple ? ")" : "]");
}

void write_dict(Writer& writer, const Dict& dict) {
  writer.add("{");
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!first) writer.add(", ");
    first = false;
    write_repr(writer, key);
    writer.add(": ");
    write_repr(writer, value);
  }
  writer.add("}");
}

}  // namespace

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto exponent_of = [&] {  // of the shortest text
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
    const std::string_view text(buffer, static_cast<size_t>(end - buffer));
    return std::atoi(std::string(text.substr(text.find('e') + 1)).c_str());
  };
  const int exponent = number == 0 ? 0 : exponent_of();
  const bool is_plain = exponent >= -4 && exponent < 16;
  const auto form = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, form).ptr;
  std::string text(buffer, end);
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void write_repr(Writer& writer, const Value& value) {
  writer.run().step();
  if (const std::string_view* text = as_text(value)) return write_quoted(writer, *text);
  if (is_undefined(value)) return writer.add("Undefined");
  write_text(writer, value);
}

void write_text(Writer& writer, const Value& value) {
  if (const std::string_view* text = as_text(value)) return writer.add(*text);
  if (is_undefined(value)) return;
  if (is_none(value)) return writer.add("None");
  if (const bool* truth = std::get_if<bool>(&value)) return writer.add(*truth ? "True" : "False");
  if (const int64_t* number = std::get_if<int64_t>(&value)) return writer.add(std::to_string(*number));
  if (const double* number = std::get_if<double>(&value)) return writer.add(float_text(*number));
  if (const List* list = as_list(value)) return write_list(writer, *list);
  if (const Dict* dict = as_dict(value)) return write_dict(writer, *dict);
  writer.run().fail(fmt::format("a {} has no text", type_of(value)));
}

std::string_view text_of(Run& run, const Value& value) {
  if (const std::string_view* text = as_text(value)) return *text;
  Writer writer(run);
  write_text(writer, value);
  return std::get<std::string_view>(writer.done());
}

}  // namespace sluice::jinja
