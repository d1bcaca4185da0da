#include "host/transformer/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "host/transformer/yarn.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"

namespace sluice {
namespace {

constexpr const char* kSupported = "supported architectures: Qwen3ForCausalLM, LlamaForCausalLM, MistralForCausalLM";
constexpr int kMostPositions = 1 << 28;

std::string read_architecture(const JsonObject& config) {
  const nlohmann::json& list = config.array("architectures");
  if (list.size() != 1 || !list[0].is_string()) config.refuse("architectures", "a list of one name is wanted", kSupported);
  std::string name = list[0];
  if (name != "Qwen3ForCausalLM" && name != "LlamaForCausalLM" && name != "MistralForCausalLM") {
    throw InputError(fmt::format("{}: unknown architecture {}", config.where(), excerpt(name)), kSupported);
  }
  return name;
}

// Keys whose other values stand for computations that transformer.cpp does not do.
void refuse_unsupported(const JsonObject& config) {
  const std::string* activation = config.find_text("hidden_act");
  if (activation != nullptr && *activation != "silu") config.refuse("hidden_act", "only \"silu\" is supported");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (config.boolean(key, false)) config.refuse(key, "only false is supported");
  }
  if (config.has("quantization_config")) {
    config.refuse("quantization_config", "quantised weights are not supported", "use a checkpoint in bf16, f16 or f32");
  }
}

/// "layer_types", if it is there: whether each layer has a window.
std::optional<std::vector<bool>> read_layer_types(const JsonObject& config, int layers) {
  if (!config.has("layer_types")) return std::nullopt;
  std::vector<bool> slides;
  for (const nlohmann::json& type : config.array("layer_types")) {
    if (type != "full_attention" && type != "sliding_attention") {
      throw InputError(fmt::format("{}: \"layer_types\" has {}", config.where(), excerpt(type.dump())),
                       "\"full_attention\" and \"sliding_attention\" are supported");
    }
    slides.push_back(type == "sliding_attention");
  }
  if (slides.size() != static_cast<size_t>(layers)) {
    throw InputError(fmt::format("{}: {} \"layer_types\" for {} layers", config.where(), slides.size(), layers));
  }
  return slides;
}

/// Without those in which every token sees all before it; empty: none is left.
std::vector<int> without_longest(std::vector<int> windows, const ModelConfig& model) {
  for (int& window : windows) window = window >= model.max_positions ? 0 : window;
  const bool any = std::any_of(windows.begin(), windows.end(), [](int window) { return window > 0; });
  return any ? windows : std::vector<int>{};
}

/// By layer, as transformers' classes of the architectures have them, with what they assume where a key is missing. Empty: none.
std::vector<int> read_windows(const JsonObject& config, const ModelConfig& model) {
  constexpr int kAssumed = 4096;
  std::optional<std::vector<bool>> slides = read_layer_types(config, model.layers);
  const auto any = [&] { return slides && std::find(slides->begin(), slides->end(), true) != slides->end(); };
  const auto window = [&] {
    return static_cast<int>(config.find_integer("sliding_window", 1, kMostPositions).value_or(kAssumed));
  };
  std::vector<int> windows(static_cast<size_t>(model.layers), 0);
  if (model.architecture == "MistralForCausalLM") {
    if (slides) config.refuse("layer_types", "Mistral models have one window for all layers");
    if (config.is_null("sliding_window")) return {};
    std::fill(windows.begin(), windows.end(), window());
    return without_longest(std::move(windows), model);
  }
  const bool is_on = model.architecture == "Qwen3ForCausalLM" && config.boolean("use_sliding_window", false);
  if (!is_on) {
    if (any()) {
      throw InputError(fmt::format("{}: \"layer_types\" has \"sliding_attention\", and the model has no window", config.where()),
                       "of a Qwen3 model \"use_sliding_window\" says that it has");
    }
    if (config.boolean("use_sliding_window", false)) config.refuse("use_sliding_window", "Llama models have no windows");
    return {};
  }
  if (config.is_null("sliding_window")) {
    if (any())
      throw InputError(
          fmt::format("{}: \"sliding_window\" is null, and layers of \"sliding_attention\" want a number", config.where()));
    return {};
  }
  const int first = static_cast<int>(config.find_integer("max_window_layers", 0, kMostPositions).value_or(28));
  for (int layer = 0; layer < model.layers; ++layer) {
    const bool has_window = slides ? (*slides)[static_cast<size_t>(layer)] : layer >= first;
    if (has_window) windows[static_cast<size_t>(layer)] = window();
  }
  return without_longest(std::move(windows), model);
}

double scale_llama3(double frequency, const JsonObject& rope, double factor) {
  const double low = rope.number("low_freq_factor", 1e-6, 1e6);
  const double high = rope.number("high_freq_factor", 1e-6, 1e6);
  if (high <= low) rope.refuse("high_freq_factor", "it must be larger than \"low_freq_factor\"");
  const double original = rope.number("original_max_position_embeddings", 1, 1e9);
  const double turns = original * frequency / (2 * std::numbers::pi);  // of this channel over the original context
  if (turns > high) return frequency;
  if (turns < low) return frequency / factor;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

/// 0 is as good as nothing, as in transformers.
std::optional<double> find_positive(const JsonObject& rope, const char* key) {
  constexpr double kMost = 1e6;
  const std::optional<double> value = rope.find_number(key, 0, kMost);
  return value && *value > 0 ? value : std::nullopt;
}

double yarn_attention_scale(const JsonObject& rope, double factor) {
  const auto numerator = find_positive(rope, "mscale");
  const auto denominator = find_positive(rope, "mscale_all_dim");
  const double scale = numerator && denominator
                           ? Yarn::attention_scale(factor, *numerator) / Yarn::attention_scale(factor, *denominator)
                           : Yarn::attention_scale(factor);
  return find_positive(rope, "attention_factor").value_or(scale);
}

/// "rope_scaling", or where there is none "rope_parameters", as transformers chooses; none: the config has neither.
std::optional<JsonObject> rope_object(const JsonObject& config) {
  const std::optional<JsonObject> older = config.find_object("rope_scaling");
  const bool says_something = older && (older->has("rope_type") || older->has("type") || older->has("rope_theta"));
  return says_something ? older : config.find_object("rope_parameters");
}

/// Raises `positions`, those of the config, to what the scaling is for.
Device::Rope read_rope(const JsonObject& config, int head_dim, int& positions) {
  const std::optional<JsonObject> scaling = rope_object(config);
  const JsonObject& theta_owner = scaling && scaling->has("rope_theta") ? *scaling : config;
  const double theta = theta_owner.find_number("rope_theta", 1, 1e12).value_or(10000);

  std::string type = "default";
  double factor = 1;
  if (scaling) {
    const char* key = scaling->has("rope_type") ? "rope_type" : "type";  // the key's older name
    if (const std::string* text = scaling->find_text(key)) type = *text;
    if (type != "default" && type != "linear" && type != "llama3" && type != "yarn") {
      scaling->refuse(key, R"("default", "linear", "llama3" or "yarn" is wanted)");
    }
    if (type != "default") factor = scaling->number("factor", 1, 1e6);
  }
  std::optional<Yarn> yarn;
  if (type == "yarn") {
    if (theta <= 1) theta_owner.refuse("rope_theta", "yarn wants a base above 1");
    const auto original = scaling->find_integer("original_max_position_embeddings", 1, kMostPositions);
    yarn.emplace(Yarn::Options{.theta = theta,
                               .head_dim = head_dim,
                               .factor = factor,
                               .original = static_cast<int>(original.value_or(positions)),
                               .beta_fast = find_positive(*scaling, "beta_fast").value_or(32),
                               .beta_slow = find_positive(*scaling, "beta_slow").value_or(1),
                               .whole = scaling->boolean("truncate", true)});
    if (original) {
      const double extended = static_cast<double>(*original) * factor;
      positions = std::max(positions, static_cast<int>(std::min<double>(extended, kMostPositions)));
    }
  }
  for (const JsonObject* owner : {&config, scaling ? &*scaling : &config}) {
    if (owner->find_number("partial_rotary_factor", 0, 1).value_or(1) != 1)
      owner->refuse("partial_rotary_factor", "only 1 is supported");
  }

  Device::Rope rope;
  rope.theta = static_cast<float>(theta);
  if (yarn) rope.attention_scale = static_cast<float>(yarn_attention_scale(*scaling, factor));
  for (int i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(theta, -2.0 * i / head_dim);
    if (yarn) frequency = yarn->frequency(frequency, i);
    if (type == "linear") frequency /= factor;
    if (type == "llama3") frequency = scale_llama3(frequency, *scaling, factor);
    rope.inverse_frequencies.push_back(static_cast<float>(frequency));
  }
  return rope;
}

std::vector<int32_t> read_end_tokens(const JsonObject& object, int vocabulary) {
  const nlohmann::json* value = object.find("eos_token_id");
  if (value == nullptr) return {};
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  std::vector<int32_t> tokens;
  for (const nlohmann::json& token : list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= static_cast<uint64_t>(vocabulary)) {
      object.refuse("eos_token_id", fmt::format("token ids from 0 to {} are wanted", vocabulary - 1));
    }
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

}  // namespace

Device::Rope plain_rope(double theta, int head_dim) {
  Device::Rope rope;
  rope.theta = static_cast<float>(theta);
  for (int i = 0; i < head_dim / 2; ++i) {
    rope.inverse_frequencies.push_back(static_cast<float>(std::pow(theta, -2.0 * i / head_dim)));
  }
  return rope;
}

ModelConfig parse_config(std::string_view text, const std::string& name) {
  const nlohmann::json document = parse_json(text, name);
  const JsonObject json(document, name);
  ModelConfig config;
  config.architecture = read_architecture(json);
  config.qk_norm = config.architecture == "Qwen3ForCausalLM";
  refuse_unsupported(json);

  const auto integer = [&](const char* key, int high) { return static_cast<int>(json.integer(key, 1, high)); };
  config.layers = integer("num_hidden_layers", 1024);
  config.hidden = integer("hidden_size", 1 << 17);
  config.query_heads = integer("num_attention_heads", 4096);
  config.kv_heads =
      static_cast<int>(json.find_integer("num_key_value_heads", 1, config.query_heads).value_or(config.query_heads));
  if (config.query_heads % config.kv_heads != 0) {
    json.refuse("num_key_value_heads", fmt::format("it must divide \"num_attention_heads\" ({})", config.query_heads));
  }
  config.intermediate = integer("intermediate_size", 1 << 20);
  config.vocabulary = integer("vocab_size", 1 << 24);
  config.max_positions = integer("max_position_embeddings", kMostPositions);
  config.rms_epsilon = static_cast<float>(json.find_number("rms_norm_eps", 0, 1).value_or(1e-6));
  config.tied_embeddings = json.boolean("tie_word_embeddings", false);

  if (const auto dim = json.find_integer("head_dim", 2, 1024)) {
    config.head_dim = static_cast<int>(*dim);
  } else {
    // What the architectures' own configuration classes assume.
    config.head_dim = config.qk_norm ? 128 : config.hidden / config.query_heads;
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    throw InputError(fmt::format("{}: the head dimension is {}; rotary embeddings need an even one", name, config.head_dim));
  }
  config.rope = read_rope(json, config.head_dim, config.max_positions);
  config.windows = read_windows(json, config);
  config.end_tokens = read_end_tokens(json, config.vocabulary);
  return config;
}

std::vector<int32_t> parse_end_tokens(std::string_view text, const std::string& name, int vocabulary) {
  const nlohmann::json document = parse_json(text, name);
  return read_end_tokens(JsonObject(document, name), vocabulary);
}

LayerChoice without_windows(const LayerChoice& layers, int count, const std::function<bool(int layer)>& has_window) {
  LayerChoice left = layers;
  for (int layer = 0; layer < count; ++layer) {
    if (!has_window(layer)) continue;
    left.sparse.erase(layer - count);
    left.sparse[layer] = false;
  }
  if (layers.is_sparse_anywhere(count) && !left.is_sparse_anywhere(count)) {
    throw InputError("every layer that the flow would run in has a window in this model", "flows leave such layers as they are");
  }
  return left;
}

LayerChoice without_windows(const LayerChoice& layers, const ModelConfig& config) {
  return without_windows(layers, config.layers, [&](int layer) { return config.window(layer) > 0; });
}

ModelConfig load_config(const std::string& model) {
  namespace fs = std::filesystem;
  if (is_gguf(model)) return gguf_config(GgufFile(model).contents());
  const std::string path = (fs::path(model) / "config.json").string();
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw InputError(fmt::format("{}: {}", path, error ? error.message() : "no such file"),
                     "a model is a GGUF file, or a Hugging Face directory: config.json, *.safetensors, tokenizer.json");
  }
  ModelConfig config = parse_config(read_text_file(path), path);
  const std::string generation = (fs::path(model) / "generation_config.json").string();
  if (fs::exists(generation, error) || error) {
    std::vector<int32_t> tokens = parse_end_tokens(read_text_file(generation), generation, config.vocabulary);
    if (!tokens.empty()) config.end_tokens = std::move(tokens);
  }
  return config;
}

}  // namespace sluice
