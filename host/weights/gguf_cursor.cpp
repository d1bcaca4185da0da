#include "host/weights/gguf_cursor.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

void refuse_gguf(const std::string& file, const std::string& what) {
  throw InputError(fmt::format("{}: {}", file, what), "the file is damaged or is not a GGUF file; fetch it again");
}

std::span<const std::byte> GgufCursor::take(uint64_t bytes) {
  const size_t left = header_.size() - position_;
  if (bytes > left) {
    if (bytes <= left + beyond_) {
      throw InputError(fmt::format("{}: metadata and shapes take more than {} MiB", file_, header_.size() >> 20),
                       "no model of these architectures needs as much");
    }
    refuse_gguf(file_, fmt::format("truncated: {} bytes are wanted at byte {}, and {} follow", bytes, position_, left + beyond_));
  }
  const auto taken = header_.subspan(position_, bytes);
  position_ += bytes;
  return taken;
}

std::string_view GgufCursor::text() {
  const auto bytes = take(number<uint64_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t GgufCursor::count(size_t least_bytes, std::string_view what) {
  const auto count = number<uint64_t>();
  const size_t left = header_.size() - position_ + beyond_;
  if (count > left / least_bytes) {
    refuse_gguf(file_, fmt::format("truncated: claims {} {} at byte {}, but {} bytes follow", count, what, position_, left));
  }
  return count;
}

}  // namespace sluice
