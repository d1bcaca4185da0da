// The input is a whole .safetensors file.

#include <cstddef>
#include <cstdint>
#include <span>

#include "host/weights/safetensors.h"
#include "scripting/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    size_t bytes = 0;
    for (const auto& [name, tensor] : sluice::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz")) {
      bytes += tensor.bytes.size();
      try {
        tensor.to_f32();
      } catch (const sluice::InputError&) {
        // Not a type of real numbers.
      }
    }
    if (bytes > size) __builtin_trap();  // tensors lie in the file and do not overlap
  } catch (const sluice::InputError&) {
    // The only way in which bad input may end.
  }
  return 0;
}
