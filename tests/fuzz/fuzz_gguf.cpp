// The input is a whole GGUF file: its tensors, its configuration, its tokenizer.

#include <cstddef>
#include <cstdint>
#include <span>

#include "host/text/gguf_tokenizer.h"
#include "host/text/tokenizer.h"
#include "host/transformer/config.h"
#include "host/weights/gguf_tensors.h"
#include "scripting/base/error.h"

namespace {

/// Whether `use` of the file ends in one of the two ways in which it may.
template <typename Use>
void attempt(const Use& use) {
  try {
    use();
  } catch (const sluice::InputError&) {
    // Bad input.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attempt([&] {
    const sluice::Gguf gguf = sluice::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
    size_t bytes = 0;
    for (const auto& [name, tensor] : gguf.tensors) {
      bytes += tensor.bytes.size();
      tensor.to_f32();
    }
    if (bytes > size) __builtin_trap();  // tensors lie in the file and do not overlap
    attempt([&] {
      for (const auto& [name, tensor] : sluice::huggingface_tensors(gguf)) tensor.to_f32();
    });
    attempt([&] { sluice::gguf_config(gguf); });
    attempt([&] { sluice::gguf_chat(gguf); });
    attempt([&] {
      const auto tokenizer = sluice::parse_tokenizer(gguf);
      tokenizer->decode(tokenizer->encode("abc <|end|> 1234"), false);
    });
  });
  return 0;
}
