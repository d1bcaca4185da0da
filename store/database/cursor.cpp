#include "store/database/cursor.h"

#include <fmt/format.h>

#include <charconv>

#include "store/error.h"

namespace sluice::store {

std::string cursor_of(int64_t number) { return fmt::format("b{:x}", number); }

int64_t number_of_cursor(const std::string& cursor) {
  int64_t number = 0;
  const char* end = cursor.data() + cursor.size();
  const bool marked = cursor.size() > 1 && cursor.front() == 'b';
  const auto read = std::from_chars(cursor.data() + (marked ? 1 : 0), end, number, 16);
  if (!marked || read.ec != std::errc() || read.ptr != end || number < 1) {
    throw StoreError(ErrorKind::kInvalid, "the cursor is none of this server's", "leave it out to start with the first page");
  }
  return number;
}

}  // namespace sluice::store
