#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agents/cli/commands.h"
#include "agents/evaluation/flow_files.h"
#include "host/default_model.h"
#include "host/engine.h"
#include "host/safetensors_writer.h"
#include "host/tokenizer.h"
#include "scripting/lua/trace.h"

namespace sluice::cli {

namespace {

struct GenerateOptions {
  std::string model;
  std::string device = "cpu";
  std::string flow;
  std::string prompt;
  std::vector<int32_t> ids;
  std::string logits;
  std::string kv;
  int page = 16;
  int threads = 0;
  int pool_mib = 1024;
  bool json = false;
  Request request;
};

/// Prints a text that grows token by token. A token that ends in the middle of a character waits for the next. Only the
/// tokens since the last print are decoded, with those of that print before them: they say whether a space goes between.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(int32_t token) {
    tokens_.push_back(token);
    print(false);
  }
  void end() { print(true); }

 private:
  void print(bool all) {
    constexpr std::string_view kReplacement = "\xef\xbf\xbd";
    const std::string text = tokenizer_.decode(tokens_);
    if (text.size() <= printed_ || (!all && std::string_view(text).ends_with(kReplacement))) return;
    fmt::print("{}", text.substr(printed_));
    std::fflush(stdout);
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(printed_tokens_));
    printed_tokens_ = tokens_.size();
    printed_ = tokenizer_.decode(tokens_).size();
  }

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;  // of the last print, then newer ones
  size_t printed_tokens_ = 0;    // how many of them were printed
  size_t printed_ = 0;           // bytes of their text
};

std::optional<DataType> kv_type(const GenerateOptions& options) {
  if (options.kv.empty()) return std::nullopt;
  return data_type_from_name(options.kv);
}

std::optional<Plan> make_plan(const GenerateOptions& options, const ModelConfig& config) {
  if (options.flow.empty()) return std::nullopt;
  TraceOptions trace;
  trace.head_dim = config.head_dim;
  trace.group = config.group();
  FlowGraph graph = trace_file(find_flow(options.flow), trace);
  graph.geometry.kv = kv_type(options).value_or(graph.geometry.kv);
  return compile(std::move(graph)).plan;
}

EngineOptions engine_options(const GenerateOptions& options) {
  EngineOptions engine;
  engine.pool_bytes = static_cast<size_t>(options.pool_mib) << 20;
  engine.max_batch = 1;
  engine.prefix_cache = false;
  engine.page = options.page;
  engine.kv = kv_type(options).value_or(DataType::kBF16);
  return engine;
}

void print_json(const RequestResult& result, size_t prompt, const Tokenizer* tokenizer) {
  nlohmann::json report = {{"schema", "sluice.generate/1"},
                           {"prompt_tokens", prompt},
                           {"ids", result.tokens},
                           {"finish", result.reason == FinishReason::kStop ? "stop" : "length"},
                           {"prefill_seconds", result.prefill_seconds},
                           {"decode_seconds", result.decode_seconds}};
  if (tokenizer != nullptr) report["text"] = tokenizer->decode(result.tokens);
  fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Found out before anything is computed, and after all else that could be refused: it leaves a file behind.
void check_writable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) throw InputError(fmt::format("{}: cannot be written", path), "is the folder there?");
}

void generate(GenerateOptions options) {
  const std::string directory = options.model.empty() ? default_model() : options.model;
  const auto device = create_device(options.device, options.threads);
  const ModelConfig config = load_config(directory);
  const std::optional<Plan> plan = make_plan(options, config);  // a flow at fault is refused before weights are read
  const bool text = options.ids.empty();
  const auto tokenizer = text ? load_tokenizer(directory) : nullptr;
  const auto model = load_model(directory, *device);
  Engine engine(*device, *model, plan ? &*plan : nullptr, engine_options(options));

  options.request.prompt = text ? tokenizer->encode(options.prompt) : options.ids;
  options.request.want_logits = !options.logits.empty();
  const size_t prompt = options.request.prompt.size();
  std::optional<TextStream> stream;
  if (text) stream.emplace(*tokenizer);
  bool first = true;
  engine.on_token([&](uint64_t, int32_t token) {
    if (options.json) return;
    if (stream) {
      stream->add(token);
    } else {
      fmt::print("{}{}", first ? "" : ",", token);
      std::fflush(stdout);
    }
    first = false;
  });
  engine.submit(std::move(options.request));
  if (!options.logits.empty()) check_writable(options.logits);
  const std::vector<RequestResult> results = engine.run_all();
  const RequestResult& result = results.at(0);
  if (options.json) {
    print_json(result, prompt, tokenizer.get());
  } else {
    if (stream) stream->end();
    fmt::print("\n");
  }
  if (!options.logits.empty()) {
    const int64_t columns = model->config().vocabulary;
    const auto rows = static_cast<int64_t>(prompt + result.tokens.size());
    SafetensorsWriter writer;
    writer.add("logits", {rows, columns}, std::span<const float>(result.logits));
    writer.write(options.logits);
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt, densely or with a flow; greedy unless told otherwise");
  command->footer("Example: sluice generate --flow quest --prompt \"<bos> key acorn = amber ask acorn =\" --max-tokens 8");
  command->add_option("--model", options->model, "Hugging Face directory (default: the mini model)");
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--flow", options->flow, "Lua file, or the name of a shipped flow (default: dense)");
  CLI::Option* prompt = command->add_option("--prompt", options->prompt, "Text to continue");
  CLI::Option* ids = command->add_option("--ids", options->ids, "Token ids to continue: 1,2,3")->delimiter(',');
  ids->check([](const std::string& id) { return id.empty() ? std::string("a token id is wanted") : std::string(); });
  prompt->excludes(ids);
  Request& request = options->request;
  command->add_option("--max-tokens", request.max_tokens, "Most tokens to generate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--logits", options->logits,
                      "Write float32 \"logits\" [prompt + generated, vocabulary] to this safetensors file");
  command->add_option("--temperature", request.sampling.temperature, "0: greedy")->capture_default_str();
  command->add_option("--top-p", request.sampling.top_p, "Sample from the fewest tokens with this share")->capture_default_str();
  command->add_option("--top-k", request.sampling.top_k, "Sample from this many tokens; 0: all")->capture_default_str();
  command->add_option("--seed", request.sampling.seed, "Of sampling, and of a flow's random numbers")->capture_default_str();
  command->add_flag("--ignore-eos", request.ignore_eos, "Go on after the model's end tokens");
  CLI::Option* page = command->add_option("--page", options->page, "Tokens a page, without a flow")->capture_default_str();
  page->excludes("--flow");
  command->add_option("--kv", options->kv, "Type of K and V: f32 or bf16 (default: the flow's, or bf16)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 1024))->capture_default_str();
  command->add_option("--pool-mib", options->pool_mib, "Size of the page pool")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print {\"schema\": \"sluice.generate/1\", ids, text, ...} at the end");
  command->callback([options, prompt, ids] {
    if (prompt->count() + ids->count() == 0) throw InputError("nothing to continue", "give --prompt TEXT or --ids 1,2,3");
    generate(*options);
  });
}

}  // namespace sluice::cli
