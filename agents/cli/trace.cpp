#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "agents/cli/arguments.h"
#include "agents/cli/commands.h"
#include "agents/tasks/text_windows.h"
#include "agents/tasks/vocabulary.h"
#include "agents/traces/attention_trace.h"
#include "agents/traces/digest.h"
#include "agents/traces/trace_recorder.h"
#include "host/text/tokenizer.h"
#include "host/weights/model_digest.h"
#include "host/weights/model_name.h"
#include "host/weights/model_path.h"
#include "scripting/base/error.h"
#include "scripting/base/printable_text.h"

namespace sluice::cli {
namespace {

struct RecordArguments {
  std::string model;
  std::string device = "cpu";
  std::string text;
  std::string out;
  int threads = 0;
  int windows = 2;
  bool in_turn = false;
  RecordOptions record;
};

/// Tokens of the text in a window; the others stand before any text. Throws InputError where there are too few.
int64_t own_tokens(const TextTokens& text, const RecordArguments& options) {
  const auto own = static_cast<int64_t>(options.record.tokens) - static_cast<int64_t>(text.beginning.size());
  if (own < 1) {
    throw InputError(fmt::format("windows of {} tokens have no room for a text: {} stand before any", options.record.tokens,
                                 text.beginning.size()));
  }
  if (static_cast<int64_t>(text.tokens.size()) < own * options.windows) {
    throw InputError(fmt::format("{}: {} tokens, too few for {} windows of {}", text.name, text.tokens.size(), options.windows,
                                 options.record.tokens),
                     "name a longer text, or take fewer windows (--windows) or shorter ones (--tokens)");
  }
  return own;
}

/// Where the text of a window begins. Windows lie at equal distances from each other and from the ends of the text.
int64_t first_token(const TextTokens& text, const RecordArguments& options, int window) {
  const int64_t own = own_tokens(text, options);
  const int64_t left = static_cast<int64_t>(text.tokens.size()) - own * options.windows;
  return (window + 1) * (left / (options.windows + 1)) + window * own;
}

std::vector<int32_t> tokens_of_window(const TextTokens& text, const RecordArguments& options, int window) {
  const auto first = text.tokens.begin() + first_token(text, options, window);
  std::vector<int32_t> tokens = text.beginning;
  tokens.insert(tokens.end(), first, first + own_tokens(text, options));
  return tokens;
}

/// What the trace will hold, before anything is recorded.
void check_size(const RecordArguments& options, const ModelConfig& config) {
  LayerTensors shape;
  shape.tokens = options.record.tokens;
  shape.steps = options.record.steps;
  shape.query_heads = config.query_heads;
  shape.kv_heads = config.kv_heads;
  shape.dim = config.head_dim;
  const size_t layers = options.in_turn ? 1 : options.record.layers.size();
  check_trace_size(shape, layers * static_cast<size_t>(options.windows), options.out);
}

/// What a window keeps: all layers, or one of them in turn.
RecordOptions of_window(const RecordArguments& options, int window) {
  RecordOptions record = options.record;
  if (options.in_turn) record.layers = {record.layers[static_cast<size_t>(window) % record.layers.size()]};
  return record;
}

void record(const RecordArguments& options) {
  const std::string path = model_path(options.model);
  const ModelConfig config = load_config(path);
  check_record(options.record, config);
  check_size(options, config);
  if (options.in_turn && options.windows < static_cast<int>(options.record.layers.size())) {
    throw InputError(fmt::format("--in-turn keeps a layer a window: {} windows are too few for {} layers", options.windows,
                                 options.record.layers.size()));
  }
  const auto tokenizer = load_tokenizer(path);
  if (load_vocabulary(path)) {
    throw InputError(fmt::format("{}: the model knows {} words and no text", model_name(path), tokenizer->vocabulary()),
                     "record a model of real text: --model smollm2");
  }
  TextReader reader;
  const auto text = reader.read(options.text, TaskContext{*tokenizer, nullptr, config.max_positions, config.vocabulary});
  own_tokens(*text, options);  // refuses a text that is too short
  prepare_trace_directory(options.out);
  const auto device = create_device(options.device, options.threads);
  const auto model = load_model(path, *device);
  AttentionTrace trace;
  trace.model = model_name(path);
  trace.model_digest = model_digest(path);
  trace.model_layers = config.layers;
  for (int window = 0; window < options.windows; ++window) {
    TraceWindow& recorded = trace.windows.emplace_back();
    const std::vector<int32_t> tokens = tokens_of_window(*text, options, window);
    recorded.first_token = first_token(*text, options, window);
    recorded.text = std::filesystem::path(text->name).filename().string();
    recorded.text_digest = hex_digest(std::as_bytes(std::span(text->tokens)));
    recorded.layers = record_window(*device, *model, tokens, of_window(options, window), [] {});
  }
  save_trace(trace, options.out);
  fmt::print("{}: layers {} of {}, {} window{} of {} tokens, the last {} decoded; written to {}\n", printable(trace.model),
             fmt::join(options.record.layers, ", "), config.layers, options.windows, options.windows == 1 ? "" : "s",
             options.record.tokens, options.record.steps, printable(options.out));
}

}  // namespace

void add_trace(CLI::App& app) {
  auto options = std::make_shared<RecordArguments>();
  CLI::App* trace = app.add_subcommand("trace", "Records what a model's attention works on, to judge flows without the model");
  trace->require_subcommand(1);
  CLI::App* command = trace->add_subcommand("record", "Has a model read a text, and keeps q, k and v of some layers");
  add_model(*command, options->model);
  command->add_option("--text", options->text, "A file, UTF-8 (default: the project's own text)");
  add_number_list(*command, "--layers", options->record.layers, 0, 1 << 16, "Layers to keep (REQUIRED)")->required();
  command->add_option("--steps", options->record.steps, "Tokens at the end of a window that are decoded one by one")
      ->check(decimal_number(1, 1024))
      ->capture_default_str();
  command->add_option("--tokens", options->record.tokens, "Tokens of a window")
      ->check(decimal_number(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--windows", options->windows, "Pieces of the text")->check(decimal_number(1, 4096))->capture_default_str();
  command->add_flag("--in-turn", options->in_turn, "Keep one layer a window, in turn: as many layers in fewer bytes");
  command->add_option("--out", options->out, "Directory to write, a new one or that of an earlier trace")->required();
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: all")
      ->check(decimal_number(0, 1024))
      ->capture_default_str();
  command->footer(
      "Every file is one that `sluice run --inputs` takes, too.\n"
      "Example:\n"
      "  sluice trace record --model smollm2 --layers 18,21 --out traces/smollm2\n"
      "  sluice eval my_flow.lua --traces traces/smollm2");
  command->callback([options] { record(*options); });
}

}  // namespace sluice::cli
