#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/weights/gguf.h"

namespace sluice {

/// A Hugging Face `tokenizer.json`, or what the metadata of a GGUF file has in its place: byte-level BPE (Qwen, Llama 3, GPT-2)
/// or word-level.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Ids of `text`; special tokens written in the text become their ids, as in Hugging Face tokenizers.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The same without the tokens that the tokenizer puts around any text, such as Llama's <|begin_of_text|>.
  virtual std::vector<int32_t> encode_as_written(std::string_view text) const = 0;
  /// Text of `ids`. `skip_special` leaves special tokens out.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = true) const = 0;
  /// What a token stands for, special ones included: bytes, which need not be whole characters. Empty if there is none of `id`.
  virtual std::string bytes_of(int32_t id) const { return decode({&id, 1}, false); }
  virtual int vocabulary() const = 0;
  /// Id of one token's text, or -1.
  virtual int32_t id_of(std::string_view token) const = 0;
};

/// Of a model: a directory, or a GGUF file. Throws InputError naming the file, and the key or model type that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model);
/// The same from the JSON text; `name` is used in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name);
/// The same from the metadata of a GGUF file (gguf_tokenizer.h).
std::unique_ptr<Tokenizer> parse_tokenizer(const Gguf& gguf);

}  // namespace sluice
