// `tojson`: json.dumps of Python, with Hugging Face's defaults.

#include <fmt/format.h>

#include <optional>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/characters.h"
#include "host/text/jinja/filters.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Run& run, const Given& given)
      : run_(run), writer_(run), ascii_(given.boolean(0, false)), sorted_(given.boolean(3, false)) {
    if (given.has(1)) {
      const bool is_text = as_text(given.at(1)) != nullptr;
      const int64_t width = is_text ? 0 : std::max<int64_t>(0, given.integer(1, 0));
      run.charge(static_cast<size_t>(width));
      indent_ = is_text ? std::string(given.text(1)) : std::string(static_cast<size_t>(width), ' ');
      comma_ = ",";
    }
    if (!given.has(2)) return;
    const std::span<const Value> separators = iterate(run, given.at(2));
    if (separators.size() != 2 || as_text(separators[0]) == nullptr || as_text(separators[1]) == nullptr) {
      run.fail("tojson: \"separators\" are two texts");
    }
    comma_ = *as_text(separators[0]);
    colon_ = *as_text(separators[1]);
  }

  Value text_of(const Value& value) {
    write(value);
    return writer_.done();
  }

 private:
  void write(const Value& value) {
    run_.step();
    int64_t place = 0;
    if (const std::string_view* text = as_text(value)) return write_quoted(*text);
    if (is_none(value)) return writer_.add("null");
    if (const bool* truth = std::get_if<bool>(&value)) return writer_.add(*truth ? "true" : "false");
    if (const int64_t* number = as_integer(value, place)) return writer_.add(std::to_string(*number));
    if (const double* number = std::get_if<double>(&value)) return writer_.add(number_text(*number));
    if (const List* list = as_list(value); list != nullptr && list->kind <= List::Kind::kTuple) return write_list(*list);
    if (const Dict* dict = as_dict(value)) return write_dict(*dict);
    run_.fail(fmt::format("tojson: there is no JSON for a {}", type_of(value)));
  }

  static std::string number_text(double number) {
    const std::string text = float_text(number);
    return text == "nan" ? "NaN" : text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
  }

  void write_quoted(std::string_view text) {
    run_.walk(text.size());
    writer_.add("\"");
    for (size_t at = 0, size = 0; at < text.size(); at += size) {
      size = character_length(text, at);
      const char32_t character = character_at(text, at);
      constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
      constexpr std::string_view kEscapes = "\"\\nrtbf";
      const size_t known = character < 0x80 ? kEscaped.find(static_cast<char>(character)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        writer_.add("\\");
        writer_.add(kEscapes.substr(known, 1));
      } else if (character < 0x20 || (ascii_ && character > 0x7e && character < 0x10000)) {
        writer_.add(fmt::format("\\u{:04x}", static_cast<uint32_t>(character)));
      } else if (ascii_ && character >= 0x10000) {
        const auto rest = static_cast<uint32_t>(character) - 0x10000;
        writer_.add(fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff)));
      } else {
        writer_.add(text.substr(at, size));
      }
    }
    writer_.add("\"");
  }

  void break_line() {
    if (!indent_) return;
    writer_.add("\n");
    for (int i = 0; i < level_; ++i) writer_.add(*indent_);
  }

  /// `count` parts between brackets, each written by `part`.
  template <class Part>
  void write_parts(const char* brackets, size_t count, Part part) {
    writer_.add(std::string_view(brackets, 1));
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) writer_.add(comma_);
      break_line();
      part(i);
    }
    --level_;
    if (count > 0) break_line();
    writer_.add(std::string_view(brackets + 1, 1));
  }

  void write_list(const List& list) {
    write_parts("[]", list.items.size(), [&](size_t i) { write(list.items[i]); });
  }

  void write_dict(const Dict& dict) {
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (sorted_) {
      run_.charge(items.size() * sizeof(items.front()));
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto& a, const auto& b) { return std::is_lt(compare(run_, a.first, b.first)); });
    }
    write_parts("{}", items.size(), [&](size_t i) {
      const Value& key = items[i].first;
      if (as_text(key) != nullptr) {
        write(key);
      } else if (as_list(key) != nullptr || as_object(key) != nullptr || is_undefined(key)) {
        run_.fail(fmt::format("tojson: a {} cannot be a key", type_of(key)));
      } else {
        writer_.add("\"");
        write(key);
        writer_.add("\"");
      }
      writer_.add(colon_);
      write(items[i].second);
    });
  }

  Run& run_;
  Writer writer_;
  const bool ascii_;
  const bool sorted_;
  std::optional<std::string> indent_;
  std::string comma_ = ", ";
  std::string colon_ = ": ";
  int level_ = 0;
};

}  // namespace

Value to_json(Run& run, const Value& input, const Arguments& arguments) {
  const Given given(run, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return JsonWriter(run, given).text_of(input);
}

}  // namespace sluice::jinja
