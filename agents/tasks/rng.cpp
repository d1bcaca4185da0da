#include "agents/tasks/rng.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "scripting/base/error.h"

namespace sluice {
namespace {

void initialise_sodium() {
  if (sodium_init() < 0) throw InternalError("libsodium could not be initialised");
}

std::array<uint8_t, 32> hash(std::string_view key, std::string_view text) {
  std::array<uint8_t, 32> digest{};
  crypto_generichash(digest.data(), digest.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     reinterpret_cast<const unsigned char*>(key.data()), key.size());
  return digest;
}

std::string_view key_of(const Seed& seed) { return {reinterpret_cast<const char*>(seed.bytes.data()), seed.bytes.size()}; }

}  // namespace

Seed Seed::secret() {
  initialise_sodium();
  Seed seed;
  randombytes_buf(seed.bytes.data(), seed.bytes.size());
  return seed;
}

Seed Seed::parse(std::string_view text) {
  initialise_sodium();
  Seed seed;
  size_t length = 0;
  const char* end = nullptr;
  if (text.size() == 64 &&
      sodium_hex2bin(seed.bytes.data(), seed.bytes.size(), text.data(), text.size(), nullptr, &length, &end) == 0 &&
      length == seed.bytes.size() && end == text.data() + text.size()) {
    return seed;
  }
  seed.bytes = hash("sluice.seed", text);
  return seed;
}

std::string Seed::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Seed Seed::derived(std::string_view name) const {
  initialise_sodium();
  return {hash(key_of(*this), "sluice.seed " + std::string(name))};
}

Rng::Rng(const Seed& seed, std::string_view stream) {
  initialise_sodium();
  key_ = hash(key_of(seed), stream);
}

void Rng::refill() {
  std::array<unsigned char, crypto_stream_chacha20_NONCEBYTES> nonce{};
  static_assert(sizeof(nonce) == sizeof(block_));
  std::memcpy(nonce.data(), &block_, sizeof(block_));
  ++block_;
  crypto_stream_chacha20(reinterpret_cast<unsigned char*>(buffer_.data()), sizeof(buffer_), nonce.data(), key_.data());
  used_ = 0;
}

uint64_t Rng::next() {
  if (used_ == buffer_.size()) refill();
  return buffer_[used_++];
}

uint64_t Rng::below(uint64_t bound) {
  if (bound == 0) throw InternalError("a random number below zero was asked for");
  // Values past the last whole multiple of `bound` would favour small results; they are drawn again.
  const uint64_t excess = (UINT64_MAX % bound + 1) % bound;
  uint64_t value = next();
  while (value > UINT64_MAX - excess) value = next();
  return value % bound;
}

int Rng::between(int low, int high) {
  if (high < low) throw InternalError("an empty range of random numbers");
  return low + static_cast<int>(below(static_cast<uint64_t>(int64_t{high} - low) + 1));
}

double Rng::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

}  // namespace sluice
