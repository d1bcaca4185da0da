#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// Parses a JSON document. `name` is the file, for messages. Throws InputError if the text is not JSON, or
/// nested absurdly deep.
nlohmann::json parse_json(std::string_view text, const std::string& name);

/// A value, or a name as the string that it is, as a message shows it: quoted, escaped and short, whatever bytes it holds.
std::string excerpt(const nlohmann::json& value);

/// What is wrong with a document, from the parser's exception: short, and without the parser's own labels.
std::string reason_of(const nlohmann::json::exception& error);

/// A JSON object from outside, read with its types and ranges checked. A key that holds null counts as absent. Every method
/// throws InputError naming the file, the key and what stands there. Refers to the document, which must outlive it.
class JsonObject {
 public:
  /// `where` names the file, and the key within it if the object is not the whole document.
  JsonObject(const nlohmann::json& value, std::string where);

  bool has(const char* key) const { return find(key) != nullptr; }
  /// Whether the key is there, and null.
  bool is_null(const char* key) const;
  /// Null if absent.
  const nlohmann::json* find(const char* key) const;
  const nlohmann::json& at(const char* key) const;
  const std::string& where() const { return where_; }

  std::optional<int64_t> find_integer(const char* key, int64_t low, int64_t high) const;
  int64_t integer(const char* key, int64_t low, int64_t high) const;
  std::optional<double> find_number(const char* key, double low, double high) const;
  double number(const char* key, double low, double high) const;
  std::optional<bool> find_boolean(const char* key) const;
  bool boolean(const char* key, bool otherwise) const { return find_boolean(key).value_or(otherwise); }
  /// Null if absent.
  const std::string* find_text(const char* key) const;
  const std::string& text(const char* key) const;
  /// The object under `key`; nullopt if absent.
  std::optional<JsonObject> find_object(const char* key) const;
  JsonObject object(const char* key) const;
  const nlohmann::json& array(const char* key) const;
  /// Pairs of key and value, for objects whose keys are data.
  auto items() const { return value_->items(); }

  /// Throws InputError if it has a key that is none of `known`.
  void refuse_others(std::initializer_list<std::string_view> known) const;
  /// Throws InputError about `key`: "FILE: "KEY" is VALUE; WANTED".
  [[noreturn]] void refuse(const char* key, const std::string& wanted, const std::string& hint = {}) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace sluice
