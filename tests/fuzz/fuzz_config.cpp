// The input is a config.json; the same text is tried as a generation_config.json.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "host/transformer/config.h"
#include "scripting/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const sluice::ModelConfig config = sluice::parse_config(text, "fuzz");
    if (config.query_heads % config.kv_heads != 0) __builtin_trap();
    if (config.rope.inverse_frequencies.size() * 2 != static_cast<size_t>(config.head_dim)) __builtin_trap();
  } catch (const sluice::InputError&) {
    // The only way in which bad input may end.
  }
  try {
    for (const int32_t token : sluice::parse_end_tokens(text, "fuzz", 1000)) {
      if (token < 0 || token >= 1000) __builtin_trap();
    }
  } catch (const sluice::InputError&) {
    // As above.
  }
  return 0;
}
