#include "scripting/base/error.h"

#include <fmt/format.h>

#include <utility>

#include "scripting/base/printable_text.h"

namespace sluice {

namespace {

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
