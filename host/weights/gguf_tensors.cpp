#include "host/weights/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

struct Name {
  std::string_view gguf;
  std::string_view huggingface;
};

constexpr std::array kModelNames = {
    Name{"token_embd", "model.embed_tokens"},
    Name{"output_norm", "model.norm"},
    Name{"output", "lm_head"},
};

/// Behind "blk.N." and "model.layers.N.".
constexpr std::array kLayerNames = {
    Name{"attn_norm", "input_layernorm"},    Name{"attn_q", "self_attn.q_proj"},
    Name{"attn_k", "self_attn.k_proj"},      Name{"attn_v", "self_attn.v_proj"},
    Name{"attn_q_norm", "self_attn.q_norm"}, Name{"attn_k_norm", "self_attn.k_norm"},
    Name{"attn_output", "self_attn.o_proj"}, Name{"ffn_norm", "post_attention_layernorm"},
    Name{"ffn_gate", "mlp.gate_proj"},       Name{"ffn_up", "mlp.up_proj"},
    Name{"ffn_down", "mlp.down_proj"},
};

template <typename Names>
const Name* find(const Names& names, std::string_view gguf) {
  const auto* const found = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.gguf == gguf; });
  return found == names.end() ? nullptr : found;
}

/// "blk.3.attn_q.weight" in its parts; `layer` is empty outside of layers.
struct NameParts {
  std::string_view layer;
  std::string_view module;
  std::string_view suffix;  // ".weight"
};

NameParts parts_of(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  NameParts parts;
  if (name.starts_with(kLayer)) {
    name.remove_prefix(kLayer.size());
    parts.layer = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), parts.layer.size() + 1));
  }
  parts.module = name.substr(0, name.find('.'));
  parts.suffix = name.substr(parts.module.size());
  return parts;
}

std::string huggingface_name(const std::string& gguf) {
  const NameParts parts = parts_of(gguf);
  const Name* name = parts.layer.empty() ? find(kModelNames, parts.module) : find(kLayerNames, parts.module);
  if (name == nullptr) return gguf;
  const std::string layer = parts.layer.empty() ? "" : fmt::format("model.layers.{}.", parts.layer);
  return fmt::format("{}{}{}", layer, name->huggingface, parts.suffix);
}

/// Of how many heads the tensor has rows in pairs; 0: it has none.
int paired_heads(const Gguf& gguf, const StoredTensor& tensor) {
  constexpr int64_t kMostHeads = 1 << 16;
  const auto [layer, module, suffix] = parts_of(tensor.name);
  const bool is_turned = suffix == ".weight" && (module == "attn_q" || module == "attn_k");
  if (!is_turned || gguf.metadata.text("general.architecture") != "llama") return 0;
  const int64_t query_heads = gguf.metadata.integer("llama.attention.head_count", 1, kMostHeads);
  const int64_t heads = module == "attn_q"
                            ? query_heads
                            : gguf.metadata.find_integer("llama.attention.head_count_kv", 1, kMostHeads).value_or(query_heads);
  if (tensor.shape.size() != 2 || tensor.rows() % (2 * heads) != 0) {
    throw InputError(
        fmt::format("{}: tensor {} {} has no rows for {} heads", gguf.name, excerpt(tensor.name), tensor.shape_text(), heads));
  }
  return static_cast<int>(heads);
}

}  // namespace

std::map<std::string, StoredTensor> huggingface_tensors(const Gguf& gguf) {
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, stored] : gguf.tensors) {
    if (name == "rope_freqs.weight") continue;
    StoredTensor tensor = stored;
    tensor.paired_heads = paired_heads(gguf, stored);
    tensor.name = huggingface_name(name);
    const auto [position, is_new] = tensors.try_emplace(tensor.name, tensor);
    if (!is_new) throw InputError(fmt::format("{}: tensor {} is there under two names", gguf.name, excerpt(tensor.name)));
  }
  return tensors;
}

}  // namespace sluice
