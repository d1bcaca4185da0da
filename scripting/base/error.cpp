#include "scripting/base/error.h"

#include <fmt/format.h>

#include <utility>

namespace sluice {

namespace {

/// What is told as a C string must not end within.
std::string without_nul(std::string message) {
  for (size_t at = message.find('\0'); at != std::string::npos; at = message.find('\0', at)) message.replace(at, 1, "\\0");
  return message;
}

std::string with_location(const SourceLocation& where, const std::string& message) {
  if (where.file.empty()) return message;
  return where.line > 0 ? fmt::format("{}:{}: {}", where.file, where.line, message) : fmt::format("{}: {}", where.file, message);
}

}  // namespace

InputError::InputError(const std::string& message, std::string hint)
    : std::runtime_error(without_nul(message)), hint_(std::move(hint)) {}

FlowError::FlowError(SourceLocation where, const std::string& message, std::string hint)
    : InputError(with_location(where, message), std::move(hint)), where_(std::move(where)), message_(message) {}

}  // namespace sluice
