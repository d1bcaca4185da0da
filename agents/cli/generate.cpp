#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "host/serving/engine.h"
#include "host/text/token_text.h"
#include "host/text/tokenizer.h"
#include "host/weights/model_path.h"
#include "host/weights/safetensors_writer.h"
#include "kernels/device/device_refusal.h"
#include "kernels/device/pass_batch.h"
#include "scripting/base/input_text.h"
#include "scripting/base/output_file.h"
#include "scripting/base/unicode.h"

namespace sluice::cli {

namespace {

constexpr size_t kLargestPrompt = size_t{64} << 20;  // bytes of a file
constexpr int32_t kLargestId = std::numeric_limits<int32_t>::max();

struct GenerateOptions {
  std::string model;
  std::string device = "cpu";
  std::string flow;
  std::string prompt;
  std::string prompt_file;
  std::vector<int32_t> ids;
  std::string ids_file;
  std::string logits;
  std::string kv;
  int page = 16;
  int threads = 0;
  int pool_mib = 0;
  bool json = false;
  Request request;
};

std::optional<DataType> kv_type(const GenerateOptions& options) {
  if (options.kv.empty()) return std::nullopt;
  return data_type_from_name(options.kv);
}

std::optional<Plan> make_plan(const std::optional<FlowScript>& script, const GenerateOptions& options,
                              const ModelConfig& config) {
  if (!script) return std::nullopt;
  FlowGraph graph = script->trace(trace_options(config));
  graph.geometry.kv = kv_type(options).value_or(graph.geometry.kv);
  Plan plan = compile(std::move(graph)).plan;
  if (!kv_type(options)) require_device_takes(plan, options.device);  // else the script is not at fault
  return plan;
}

/// With pages for the request, as far as the model has positions, unless the size of the pool is given.
EngineOptions engine_options(const GenerateOptions& options, const ModelConfig& config, const Plan* plan) {
  EngineOptions engine;
  engine.pool_bytes = static_cast<size_t>(options.pool_mib) << 20;
  if (options.pool_mib == 0) {
    const auto wanted = static_cast<int64_t>(options.request.prompt.size()) + options.request.max_tokens;
    const auto tokens = static_cast<int>(std::min<int64_t>(wanted, config.max_positions));
    engine.pages = pages_for(tokens, plan != nullptr ? plan->layout.page : options.page) + 1;
  }
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

/// A prompt of a file, without the line break that editors leave at its end.
std::string read_prompt(const std::string& path) {
  std::string text = read_input(path, kLargestPrompt);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// Token ids between commas and white space. Throws InputError.
std::vector<int32_t> read_ids(const std::string& path) {
  std::string text = read_input(path, kLargestPrompt);
  std::replace(text.begin(), text.end(), ',', ' ');
  std::vector<int32_t> ids;
  std::istringstream stream(text);
  for (std::string id; stream >> id;) {
    const std::string refused = parse_decimal(id, 0, kLargestId, ids.emplace_back());
    if (!refused.empty()) throw InputError(fmt::format("{}: {}", name_of_input(path), refused), "token ids are wanted: 1,2,3");
  }
  return ids;
}

/// Tokenizers would put another character where there is none. Throws InputError.
void check_utf8(std::string_view text, const std::string& name) {
  for (size_t at = 0; at < text.size();) {
    const int length = utf8_length(text, at);
    if (length == 0) {
      throw InputError(fmt::format("{}: not UTF-8 text: there is no character at byte {}", name, at + 1),
                       "--ids takes tokens that are no text");
    }
    at += static_cast<size_t>(length);
  }
}

size_t count(std::string_view text, std::string_view part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++times;
  return times;
}

/// Tokenizers of whole words write the same token for every word that they do not know.
void warn_of_unknown_words(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids) {
  for (const std::string_view token : {"<unk>", "[UNK]"}) {
    const int32_t id = tokenizer.id_of(token);
    if (id < 0) continue;
    const auto found = static_cast<size_t>(std::count(ids.begin(), ids.end(), id));
    const size_t written = count(text, token);
    if (found <= written) continue;
    fmt::print(stderr, "warning: {} of {} words are unknown to the tokenizer\n", found - written, ids.size());
  }
}

/// The result of the one request; `before_error` ends what was printed before an error is.
template <class BeforeError>
RequestResult run_one(Engine& engine, BeforeError before_error) {
  try {
    return engine.run_all().at(0);
  } catch (...) {
    before_error();
    throw;
  }
}

void generate(GenerateOptions options) {
  if (!options.prompt_file.empty()) options.prompt = read_prompt(options.prompt_file);
  check_utf8(options.prompt, options.prompt_file.empty() ? "--prompt" : name_of_input(options.prompt_file));
  if (!options.ids_file.empty()) options.ids = read_ids(options.ids_file);
  std::optional<FlowScript> script;
  if (!options.flow.empty()) script = read_flow(options.flow);
  const std::string path = model_path(options.model);
  std::optional<OutputFile> logits;
  if (!options.logits.empty()) {
    logits.emplace(options.logits, std::vector{options.prompt_file, options.ids_file, script ? script->file : "", path});
  }
  const ModelConfig config = load_config(path);
  const std::optional<Plan> plan = make_plan(script, options, config);  // a flow at fault is refused before anything else is made
  const auto device = create_device(options.device, options.threads);
  const bool text = options.ids.empty() && options.ids_file.empty();
  const auto tokenizer = text ? load_tokenizer(path) : nullptr;
  const auto model = load_model(path, *device);
  options.request.prompt = text ? tokenizer->encode(options.prompt) : options.ids;
  const Plan* const flow = plan ? &*plan : nullptr;
  Engine engine(*device, *model, flow, engine_options(options, config, flow));

  if (text) warn_of_unknown_words(*tokenizer, options.prompt, options.request.prompt);
  options.request.want_logits = logits.has_value();
  const size_t prompt = options.request.prompt.size();
  std::optional<TokenText> stream;
  if (text) stream.emplace(*tokenizer);
  bool first = true;
  engine.on_token([&](uint64_t, const GeneratedToken& generated) {
    if (options.json) return;
    if (stream) {
      fmt::print("{}", stream->add(generated.token));
    } else {
      fmt::print("{}{}", first ? "" : ",", generated.token);
    }
    std::fflush(stdout);
    first = false;
  });
  engine.submit(std::move(options.request));
  const RequestResult result = run_one(engine, [&] {
    if (!first) std::puts("");
    std::fflush(stdout);
  });
  if (options.json) {
    print_json(result, prompt, tokenizer.get());
  } else {
    if (stream) fmt::print("{}", stream->end());
    fmt::print("\n");
  }
  if (logits) {
    const int64_t columns = model->config().vocabulary;
    const auto rows = static_cast<int64_t>(prompt + result.tokens.size());
    SafetensorsWriter writer;
    writer.add("logits", {rows, columns}, std::span<const float>(result.logits));
    logits->write([&](const std::string& file) { writer.write(file); });
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  constexpr int kMost = 1 << 30;
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt, densely or with a flow; greedy unless told otherwise");
  command->footer(
      "Example: sluice generate --flow quest --prompt \"<bos> key acorn = 11 22 33 44 ; ask acorn =\" --max-tokens 8");
  add_model(*command, options->model);
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--flow", options->flow, "Lua file, - for standard input, or the name of a shipped flow (default: dense)");
  CLI::Option* prompt = command->add_option("--prompt", options->prompt, "Text to continue");
  CLI::Option* prompt_file =
      command->add_option("--prompt-file", options->prompt_file, "The same from a file, or - for standard input");
  CLI::Option* ids = add_number_list(*command, "--ids", options->ids, 0, kLargestId, "Token ids to continue: 1,2,3");
  CLI::Option* ids_file = command->add_option("--ids-file", options->ids_file, "The same from a file, or - for standard input");
  Request& request = options->request;
  command->add_option("--max-tokens", request.max_tokens, "Most tokens to generate")
      ->check(decimal_number(1, kMost))
      ->capture_default_str();
  command->add_option("--logits", options->logits,
                      "Write float32 \"logits\" [prompt + generated, vocabulary] to this safetensors file");
  command->add_option("--temperature", request.sampling.temperature, "0: greedy")
      ->check(finite_number(0, 100))
      ->capture_default_str();
  command->add_option("--top-p", request.sampling.top_p, "Sample from the fewest tokens with this share")
      ->check(positive_share())
      ->capture_default_str();
  command->add_option("--top-k", request.sampling.top_k, "Sample from this many tokens; 0: all")
      ->check(decimal_number(0, kMost))
      ->capture_default_str();
  command->add_option("--seed", request.sampling.seed, "Of sampling, and of a flow's random numbers")
      ->check(decimal_number(uint64_t{0}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  command->add_flag("--ignore-eos", request.ignore_eos, "Go on after the model's end tokens");
  CLI::Option* page = command->add_option("--page", options->page, "Tokens a page, without a flow")
                          ->check(decimal_number(8, 128))
                          ->capture_default_str();
  page->excludes("--flow");
  command->add_option("--kv", options->kv, "Type of K and V: f32 (cpu), bf16, e4m3 or e5m2 (cuda) (default: the flow's, or bf16)")
      ->check(CLI::IsMember({"f32", "bf16", "e4m3", "e5m2"}));
  command->add_option("--threads", options->threads, "0: all cores")->check(decimal_number(0, 1024))->capture_default_str();
  command->add_option("--pool-mib", options->pool_mib, "Size of the page pool; 0: what prompt and answer need")
      ->check(decimal_number(0, 1 << 20))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print {\"schema\": \"sluice.generate/1\", ids, text, ...} at the end");
  command->callback([options, inputs = std::array{prompt, prompt_file, ids, ids_file}] {
    const auto given = std::count_if(inputs.begin(), inputs.end(), [](const CLI::Option* input) { return input->count() > 0; });
    if (given != 1) {
      throw InputError(given == 0 ? "nothing to continue" : "more than one prompt to continue",
                       "give one of --prompt TEXT, --prompt-file FILE, --ids 1,2,3 and --ids-file FILE");
    }
    generate(*options);
  });
}

}  // namespace sluice::cli
