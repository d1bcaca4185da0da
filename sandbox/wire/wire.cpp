#include "sandbox/wire/wire.h"

#include <fmt/format.h>

#include <cmath>

#include "scripting/base/error.h"

namespace sluice {

void WireWriter::text(std::string_view value) {
  number(static_cast<uint32_t>(value.size()));
  bytes_.append(value);
}

void WireReader::refuse(std::string_view what, std::string_view why) {
  throw InputError(fmt::format("the message is damaged: {} {}", what, why));
}

std::string_view WireReader::take(size_t size, std::string_view what) {
  if (size > bytes_.size()) refuse(what, "is cut off");
  const std::string_view taken = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return taken;
}

int32_t WireReader::integer(std::string_view what, int32_t lowest, int32_t highest) {
  const auto value = number<int32_t>(what);
  if (value < lowest || value > highest) refuse(what, fmt::format("is {}, not {} to {}", value, lowest, highest));
  return value;
}

double WireReader::real(std::string_view what) {
  const auto value = number<double>(what);
  if (std::isnan(value)) refuse(what, "is not a number");
  return value;
}

bool WireReader::flag(std::string_view what) {
  const auto value = number<uint8_t>(what);
  if (value > 1) refuse(what, "is neither true nor false");
  return value == 1;
}

size_t WireReader::count(std::string_view what, size_t most) {
  const auto value = number<uint32_t>(what);
  if (value > most) refuse(what, fmt::format("are {}, more than {}", value, most));
  return value;
}

std::string WireReader::text(std::string_view what, size_t longest) {
  const auto length = number<uint32_t>(what);
  if (length > longest) refuse(what, fmt::format("has {} bytes, more than {}", length, longest));
  return std::string(take(length, what));
}

void WireReader::finish() const {
  if (!bytes_.empty()) refuse("its end", fmt::format("is followed by {} bytes", bytes_.size()));
}

}  // namespace sluice
