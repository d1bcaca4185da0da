#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "host/transformer/config.h"
#include "host/transformer/yarn.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int kMostPositions = 1 << 28;
constexpr const char* kSupported = "supported architectures: llama, qwen3";

/// Keys of the metadata behind the architecture's name.
class ArchitectureKeys {
 public:
  explicit ArchitectureKeys(const GgufMetadata& metadata) : metadata_(metadata), name_(metadata.text("general.architecture")) {}

  const std::string& name() const { return name_; }
  std::string key(const char* key) const { return name_ + "." + key; }
  int integer(const char* key, int high) const { return static_cast<int>(metadata_.integer(this->key(key), 1, high)); }
  int integer(const char* key, int high, int otherwise) const {
    return static_cast<int>(metadata_.find_integer(this->key(key), 1, high).value_or(otherwise));
  }
  double number(const char* key, double low, double high, double otherwise) const {
    return metadata_.find_number(this->key(key), low, high).value_or(otherwise);
  }
  [[noreturn]] void refuse(const char* key, const std::string& wanted) const { metadata_.refuse(this->key(key), wanted); }
  const GgufMetadata& metadata() const { return metadata_; }

 private:
  const GgufMetadata& metadata_;
  std::string name_;
};

std::string huggingface_architecture(const GgufMetadata& metadata, const std::string& name) {
  if (name == "llama") return "LlamaForCausalLM";
  if (name == "qwen3") return "Qwen3ForCausalLM";
  if (name == "qwen2") {
    metadata.refuse("general.architecture", "its queries, keys and values have biases, which are not supported", kSupported);
  }
  metadata.refuse("general.architecture", "it is not supported", kSupported);
}

/// Keys that stand for computations that transformer.cpp does not do.
void refuse_unsupported(const ArchitectureKeys& keys) {
  for (const char* key : {"attention.sliding_window", "expert_count", "attention.clamp_kqv", "attention.max_alibi_bias",
                          "attn_logit_softcapping", "final_logit_softcapping"}) {
    if (keys.number(key, 0, 1e9, 0) != 0) keys.refuse(key, "only 0 is supported");
  }
  for (const char* key : {"attention.scale", "logit_scale", "embedding_scale", "residual_scale"}) {
    if (keys.metadata().has(keys.key(key))) keys.refuse(key, "it is not supported");
  }
  if (keys.metadata().find_boolean(keys.key("use_parallel_residual")).value_or(false)) {
    keys.refuse("use_parallel_residual", "only false is supported");
  }
  if (!keys.metadata().find_boolean(keys.key("attention.causal")).value_or(true)) {
    keys.refuse("attention.causal", "only true is supported");
  }
}

/// "none", "linear" or "yarn", and what positions are divided by; 1: they are not.
struct RopeScaling {
  std::string type;
  double factor = 1;

  explicit RopeScaling(const ArchitectureKeys& keys) {
    constexpr double kMost = 1e6;
    const double older = keys.number("rope.scale_linear", 0, kMost, 0);
    const double given = keys.number("rope.scaling.factor", 0, kMost, older);
    type = keys.metadata().find_text(keys.key("rope.scaling.type")).value_or("linear");
    if (type != "none" && type != "linear" && type != "yarn")
      keys.refuse("rope.scaling.type", R"("none", "linear" or "yarn" is wanted)");
    if (type == "yarn" && given < 1) keys.refuse("rope.scaling.factor", "yarn wants one of 1 or more");
    if (type != "none" && given != 0) factor = given;  // 0 stands for none
  }
};

/// As llama.cpp has it, which is what transformers has. Raises `positions` to what the scaling is for.
Yarn read_yarn(const ArchitectureKeys& keys, double theta, int head_dim, double factor, int& positions) {
  constexpr double kMost = 1e6;
  if (theta <= 1) keys.refuse("rope.freq_base", "yarn wants a base above 1");
  if (keys.number("rope.scaling.yarn_ext_factor", -kMost, kMost, 1) != 1)
    keys.refuse("rope.scaling.yarn_ext_factor", "only 1 is supported");
  if (keys.number("rope.scaling.yarn_log_multiplier", -kMost, kMost, 0) != 0)
    keys.refuse("rope.scaling.yarn_log_multiplier", "only 0 is supported");
  const int original = keys.integer("rope.scaling.original_context_length", kMostPositions, positions);
  if (keys.metadata().has(keys.key("rope.scaling.original_context_length")))
    positions = std::max(positions, static_cast<int>(std::min<double>(original * factor, kMostPositions)));
  return Yarn({.theta = theta,
               .head_dim = head_dim,
               .factor = factor,
               .original = original,
               .beta_fast = keys.number("rope.scaling.yarn_beta_fast", 1e-6, kMost, 32),
               .beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1e-6, kMost, 1)});
}

/// What each channel's frequency is divided by: the factors of Llama 3.
std::vector<float> frequency_factors(const Gguf& gguf, int head_dim) {
  std::vector<float> factors(static_cast<size_t>(head_dim / 2), 1.F);
  const auto found = gguf.tensors.find("rope_freqs.weight");
  if (found == gguf.tensors.end()) return factors;
  const StoredTensor& tensor = found->second;
  if (tensor.shape != std::vector<int64_t>{head_dim / 2}) {
    throw InputError(fmt::format("{}: tensor \"rope_freqs.weight\" has shape {}; [{}] is wanted", gguf.name, tensor.shape_text(),
                                 head_dim / 2));
  }
  factors = tensor.to_f32();
  if (std::any_of(factors.begin(), factors.end(), [](float factor) { return !(factor > 0) || std::isinf(factor); })) {
    throw InputError(fmt::format("{}: tensor \"rope_freqs.weight\" holds a factor that is not above 0", gguf.name));
  }
  return factors;
}

/// Raises `positions`, those of the file, to what the scaling is for.
Device::Rope read_rope(const Gguf& gguf, const ArchitectureKeys& keys, int head_dim, int& positions) {
  if (keys.integer("rope.dimension_count", 1 << 20, head_dim) != head_dim) {
    keys.refuse("rope.dimension_count", fmt::format("the head dimension ({}) is wanted", head_dim));
  }
  const double theta = keys.number("rope.freq_base", 1, 1e12, 10000);
  const RopeScaling scaling(keys);
  const std::vector<float> factors = frequency_factors(gguf, head_dim);
  std::optional<Yarn> yarn;
  if (scaling.type == "yarn") yarn = read_yarn(keys, theta, head_dim, scaling.factor, positions);
  Device::Rope rope;
  rope.theta = static_cast<float>(theta);
  constexpr double kMostScale = 1e3;
  if (yarn)
    rope.attention_scale =
        static_cast<float>(keys.number("rope.scaling.yarn_attn_factor", 1e-3, kMostScale, 1) *
                           keys.number("rope.scaling.attn_factor", 1e-3, kMostScale, 1) * Yarn::attention_scale(scaling.factor));
  for (int i = 0; i < head_dim / 2; ++i) {
    const double plain = std::pow(theta, -2.0 * i / head_dim);
    const double frequency = yarn ? yarn->frequency(plain, i) : plain / scaling.factor;
    rope.inverse_frequencies.push_back(static_cast<float>(frequency / factors[static_cast<size_t>(i)]));
  }
  return rope;
}

/// The end of a text, of a turn and of a message, as far as the file names them.
std::vector<int32_t> read_end_tokens(const GgufMetadata& metadata, int vocabulary) {
  std::vector<int32_t> tokens;
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto token = metadata.find_integer(fmt::format("tokenizer.ggml.{}_token_id", name), 0, vocabulary - 1);
    if (token && std::find(tokens.begin(), tokens.end(), *token) == tokens.end()) tokens.push_back(static_cast<int32_t>(*token));
  }
  return tokens;
}

/// Rows of the table of embeddings.
int read_vocabulary(const Gguf& gguf) {
  constexpr int64_t kMost = 1 << 24;
  const StoredTensor& table = gguf.at("token_embd.weight");
  if (table.shape.size() != 2 || table.shape[0] > kMost) {
    throw InputError(fmt::format("{}: tensor \"token_embd.weight\" has shape {}; [vocabulary, embedding_length] is wanted",
                                 gguf.name, table.shape_text()));
  }
  return static_cast<int>(table.shape[0]);
}

void read_heads(const ArchitectureKeys& keys, ModelConfig& config) {
  config.query_heads = keys.integer("attention.head_count", 4096);
  config.kv_heads = keys.integer("attention.head_count_kv", config.query_heads, config.query_heads);
  if (config.query_heads % config.kv_heads != 0) {
    keys.refuse("attention.head_count_kv", fmt::format("it must divide the count of query heads ({})", config.query_heads));
  }
  config.head_dim = keys.integer("attention.key_length", 1024, config.hidden / config.query_heads);
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    throw InputError(
        fmt::format("{}: the head dimension is {}; rotary embeddings need an even one", keys.metadata().file(), config.head_dim));
  }
  if (keys.integer("attention.value_length", 1024, config.head_dim) != config.head_dim) {
    keys.refuse("attention.value_length", fmt::format("the dimension of keys ({}) is wanted", config.head_dim));
  }
}

}  // namespace

ModelConfig gguf_config(const Gguf& gguf) {
  const ArchitectureKeys keys(gguf.metadata);
  ModelConfig config;
  config.architecture = huggingface_architecture(gguf.metadata, keys.name());
  config.qk_norm = config.architecture == "Qwen3ForCausalLM";
  refuse_unsupported(keys);
  config.layers = keys.integer("block_count", 1024);
  config.hidden = keys.integer("embedding_length", 1 << 17);
  config.intermediate = keys.integer("feed_forward_length", 1 << 20);
  config.max_positions = keys.integer("context_length", kMostPositions);
  config.rms_epsilon = static_cast<float>(gguf.metadata.number(keys.key("attention.layer_norm_rms_epsilon"), 0, 1));
  config.vocabulary = read_vocabulary(gguf);
  if (keys.integer("vocab_size", 1 << 24, config.vocabulary) != config.vocabulary) {
    keys.refuse("vocab_size", fmt::format("as many as there are embeddings ({}) are wanted", config.vocabulary));
  }
  config.tied_embeddings = !gguf.tensors.contains("output.weight");
  read_heads(keys, config);
  config.rope = read_rope(gguf, keys, config.head_dim, config.max_positions);
  config.end_tokens = read_end_tokens(gguf.metadata, config.vocabulary);
  return config;
}

}  // namespace sluice
