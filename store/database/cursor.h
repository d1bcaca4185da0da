#pragma once

#include <cstdint>
#include <string>

namespace sluice::store {

/// What stands for a number above 0 where a page of a list begins; readers pass it on as it is.
std::string cursor_of(int64_t number);
/// Throws StoreError (kInvalid) for what is no cursor.
int64_t number_of_cursor(const std::string& cursor);

}  // namespace sluice::store
