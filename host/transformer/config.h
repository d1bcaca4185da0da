#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/transformer/model.h"
#include "host/weights/gguf.h"

namespace sluice {

/// The text of a `config.json`; `name` is used in messages. Every key that we read is checked for type and range, and what
/// would change the computation in a way we do not have (biases, quantised weights, ...) is refused.
/// Accepts both ways of writing rotary parameters: `rope_parameters` and the older `rope_theta` with `rope_scaling`.
/// Throws InputError naming the key and its value.
ModelConfig parse_config(std::string_view text, const std::string& name);

/// What the metadata of a GGUF file says, with the same care; frequencies include the factors of its tensor rope_freqs.weight.
/// Throws InputError naming the key.
ModelConfig gguf_config(const Gguf& gguf);

/// Rotary frequencies of `head_dim` without any scaling: theta^(-2i / head_dim).
Device::Rope plain_rope(double theta, int head_dim);

/// The end tokens of a `generation_config.json` (an id, a list of ids or nothing). Throws InputError.
std::vector<int32_t> parse_end_tokens(std::string_view text, const std::string& name, int vocabulary);

}  // namespace sluice
