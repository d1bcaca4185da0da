#pragma once

#include <string>

namespace sluice::store {

/// Before anything of libsodium is used: it chooses its code for this processor. Throws StoreError (kInternal).
void start_sodium();

/// Two digits a byte.
std::string hexadecimal(const std::string& bytes);

}  // namespace sluice::store
