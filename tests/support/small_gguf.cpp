#include "tests/support/small_gguf.h"

#include <cmath>

#include "scripting/base/unicode.h"

namespace sluice::testing {
namespace {

constexpr uint32_t kQ80 = 8;
constexpr uint64_t kHidden = 64;
constexpr uint64_t kKeys = 32;
constexpr uint64_t kInner = 96;

/// Small numbers that differ from row to row.
void add_matrix(GgufWriter& writer, const std::string& name, uint64_t rows, uint64_t columns) {
  const std::string scale = little_endian(uint16_t{0x1400});  // 2^-10 as a half
  std::string blocks;
  for (uint64_t at = 0; at < rows * columns; ++at) {
    if (at % 32 == 0) blocks += scale;
    blocks += static_cast<char>(std::lround(100 * std::sin(0.37 * static_cast<double>(at * at % 9973))));
  }
  writer.add(name, {rows, columns}, kQ80, blocks);
}

void add_gain(GgufWriter& writer, const std::string& name) { writer.add(name, {kHidden}, std::vector<float>(kHidden, 1.F)); }

/// Bytes as GPT-2 writes them: those that do not print take the code points from 256 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters(256);
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    append_utf8(characters[byte], prints ? byte : next++);
  }
  return characters;
}

void put_tokenizer(GgufWriter& writer) {
  std::vector<std::string> tokens = byte_characters();
  std::vector<int32_t> kinds(258, 1);
  for (const char* token : {"ab", "abc", "<|begin|>", "<|end|>", "<think>", "[PAD]"}) tokens.emplace_back(token);
  for (const int32_t kind : {3, 3, 4, 5}) kinds.push_back(kind);
  writer.put("tokenizer.ggml.model", "gpt2");
  writer.put("tokenizer.ggml.pre", "gpt-2");
  writer.put("tokenizer.ggml.tokens", tokens);
  writer.put("tokenizer.ggml.token_type", kinds);
  writer.put("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c"});
  writer.put("tokenizer.ggml.bos_token_id", uint32_t{258});
  writer.put("tokenizer.ggml.eos_token_id", uint32_t{259});
  writer.put("tokenizer.chat_template", "{{ messages }}");
}

}  // namespace

GgufWriter small_gguf(uint64_t embeddings) {
  GgufWriter writer;
  writer.put("general.architecture", "llama");
  writer.put("general.type", "model");
  writer.put("llama.block_count", uint32_t{2});
  writer.put("llama.context_length", uint32_t{2048});
  writer.put("llama.embedding_length", static_cast<uint32_t>(kHidden));
  writer.put("llama.feed_forward_length", static_cast<uint32_t>(kInner));
  writer.put("llama.attention.head_count", uint32_t{4});
  writer.put("llama.attention.head_count_kv", uint32_t{2});
  writer.put("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.put("llama.rope.freq_base", 100000.F);
  writer.put("llama.rope.dimension_count", uint32_t{16});
  writer.put("llama.vocab_size", static_cast<uint32_t>(embeddings));
  put_tokenizer(writer);
  add_matrix(writer, "token_embd.weight", embeddings, kHidden);
  add_gain(writer, "output_norm.weight");
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) add_gain(writer, layer + norm);
    add_matrix(writer, layer + "attn_q.weight", kHidden, kHidden);
    add_matrix(writer, layer + "attn_k.weight", kKeys, kHidden);
    add_matrix(writer, layer + "attn_v.weight", kKeys, kHidden);
    add_matrix(writer, layer + "attn_output.weight", kHidden, kHidden);
    add_matrix(writer, layer + "ffn_gate.weight", kInner, kHidden);
    add_matrix(writer, layer + "ffn_up.weight", kInner, kHidden);
    add_matrix(writer, layer + "ffn_down.weight", kHidden, kInner);
  }
  return writer;
}

}  // namespace sluice::testing
