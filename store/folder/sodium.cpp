#include "store/folder/sodium.h"

#include <fmt/format.h>
#include <sodium.h>

#include "store/error.h"

namespace sluice::store {

void start_sodium() {
  if (sodium_init() < 0) throw StoreError(ErrorKind::kInternal, "libsodium finds no source of random numbers");
}

std::string hash_of(const std::vector<std::string_view>& parts) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, crypto_generichash_BYTES);
  for (const std::string_view part : parts) {
    const std::string length = fmt::format("{}:", part.size());
    for (const std::string_view piece : {std::string_view(length), part}) {
      crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(piece.data()), piece.size());
    }
  }
  std::string hash(crypto_generichash_BYTES, '\0');
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(hash.data()), hash.size());
  return hash;
}

std::string hexadecimal(const std::string& bytes) {
  std::string digits(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  digits.pop_back();
  return digits;
}

}  // namespace sluice::store
