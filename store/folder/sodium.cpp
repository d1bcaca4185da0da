#include "store/folder/sodium.h"

#include <sodium.h>

#include "store/error.h"

namespace sluice::store {

void start_sodium() {
  if (sodium_init() < 0) throw StoreError(ErrorKind::kInternal, "libsodium finds no source of random numbers");
}

std::string hexadecimal(const std::string& bytes) {
  std::string digits(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  digits.pop_back();
  return digits;
}

}  // namespace sluice::store
