// The first line of the input is text to encode, the rest a tokenizer.json.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "host/text/tokenizer.h"
#include "scripting/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos) return 0;
  try {
    const auto tokenizer = sluice::parse_tokenizer(input.substr(line + 1), "fuzz");
    const auto ids = tokenizer->encode(input.substr(0, line));
    tokenizer->decode(ids, false);
  } catch (const sluice::InputError&) {
    // The only way in which bad input may end.
  }
  return 0;
}
