#include "store/text_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/error.h"

namespace sluice::store {

namespace {

constexpr int kDeepest = 16;

[[noreturn]] void refuse(const std::string& what, const std::string& why, const std::string& hint = {}) {
  throw StoreError(ErrorKind::kInvalid, fmt::format("the {} {}", what, why), hint);
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

void check_size(const std::string& what, const std::string& text, size_t most) {
  if (text.size() > most) refuse(what, fmt::format("has {} bytes", text.size()), fmt::format("at most {} are kept", most));
}

void check_text(const std::string& what, const std::string& text, size_t most) {
  check_size(what, text, most);
  if (text.find('\0') != std::string::npos) refuse(what, "holds a NUL character");
  if (!is_utf8(text)) refuse(what, "is no UTF-8 text");
}

void check_one_line(const std::string& what, const std::string& text) {
  if (text.empty()) refuse(what, "is empty");
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) refuse(what, "holds a line break or another control character");
}

std::string canonical_object(const std::string& what, const std::string& json) {
  try {
    const auto shallow = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
      if (depth > kDeepest) refuse(what, "are nested too deeply", fmt::format("at most {} levels", kDeepest));
      return true;
    };
    const nlohmann::json parsed = nlohmann::json::parse(json, shallow);
    if (!parsed.is_object()) refuse(what, fmt::format("are a JSON {}", parsed.type_name()), "a JSON object is wanted");
    return parsed.dump();
  } catch (const nlohmann::json::exception& error) {
    refuse(what, fmt::format("are no JSON: {}", error.what()));
  }
}

}  // namespace sluice::store
