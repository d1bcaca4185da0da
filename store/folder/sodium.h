#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::store {

/// Before anything of libsodium is used: it chooses its code for this processor. Throws StoreError (kInternal).
void start_sodium();

/// BLAKE2b of the parts, each after its length, so that no two lists of parts look the same.
std::string hash_of(const std::vector<std::string_view>& parts);

/// Two digits a byte.
std::string hexadecimal(const std::string& bytes);

}  // namespace sluice::store
