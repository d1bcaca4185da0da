#include <fmt/format.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "agents/cli/arguments.h"
#include "agents/cli/client_options.h"
#include "agents/cli/commands.h"
#include "agents/cli/interrupts.h"
#include "agents/cli/line_editor.h"
#include "agents/cli/terminal.h"
#include "agents/client/repl_server.h"
#include "agents/repl/session.h"
#include "agents/tasks/task.h"
#include "host/text/chat_template.h"
#include "host/weights/model_name.h"
#include "host/weights/model_path.h"
#include "scripting/base/printable_text.h"

namespace sluice::cli {

namespace {

constexpr int kInterrupted = 130;  // as shells say it of SIGINT
constexpr int kMostTokens = 1 << 20;
constexpr size_t kLongestInput = size_t{64} << 10;  // what tracing takes (docs/FLOWS.md)

struct ReplOptions {
  std::string model;
  std::string device = "cpu";
  int threads = 0;
  std::string prompt;
  std::string task = "needle_multiquery";
  int tokens = 1024;
  int layer = 0;
  int head = 0;
  std::string kv = "bf16";
  bool strict = false;
  bool no_history = false;
  ServerAccess access = ServerAccess::from_environment();
};

/// The prompt of one sample of the task, the same every time.
std::string task_prompt(const ReplOptions& options, const std::string& path, const Tokenizer& tokenizer,
                        const ModelConfig& config) {
  const std::optional<MiniVocabulary> mini = load_vocabulary(path);
  const std::unique_ptr<ChatTemplate> chat = load_chat_template(path);
  const TaskContext context{tokenizer, mini ? &*mini : nullptr, config.max_positions, config.vocabulary, chat.get()};
  Rng random(Seed::parse("repl"), options.task);
  return sluice::generate(find_task(options.task), context, random, options.tokens).prompt;
}

/// Lines from a terminal or from anything else.
class Input {
 public:
  Input(const ReplOptions& options, LineEditor::Completer completer) {
    if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) return;
    editor_.emplace(options.no_history ? std::string() : history_file(), std::move(completer));
  }

  bool is_terminal() const { return editor_.has_value(); }

  std::optional<LineEditor::Line> read(const std::string& prompt) {
    if (editor_) return editor_->read(prompt);
    LineEditor::Line line;
    if (!std::getline(std::cin, line.text)) return std::nullopt;
    return line;
  }

 private:
  std::optional<LineEditor> editor_;
};

void say(const std::string& text) {
  std::fflush(stdout);
  std::fputs(printable(text).c_str(), stderr);
}

/// True if `input` did what it asks. The session goes on in any case.
bool answer(repl::Session& session, const std::string& input) {
  const auto refuse = [](const std::string& message, const std::string& hint = {}) {
    say(fmt::format("error: {}\n", message) + (hint.empty() ? "" : fmt::format("  hint: {}\n", hint)));
    return false;
  };
  try {
    fmt::print("{}", session.run(input));
    std::fflush(stdout);
    return true;
  } catch (const repl::Interrupted&) {
    say("interrupted\n");
  } catch (const InputError& error) {
    return refuse(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    return refuse("out of memory", "reduce an axis earlier, or look at a shorter prompt");
  }
  return false;
}

/// True if every input did what it asks.
bool converse(repl::Session& session, Input& source) {
  bool all = true;
  std::string input;
  const auto run = [&] {
    const Interrupts interrupts;
    all = answer(session, input) && all;
    input.clear();
  };
  while (!session.has_ended()) {
    const std::optional<LineEditor::Line> line = source.read(input.empty() ? "> " : ".. ");
    if (!line) {
      if (!input.empty()) run();
      break;
    }
    if (line->interrupted) {
      input.clear();
      continue;
    }
    input += (input.empty() ? "" : "\n") + line->text;
    if (input.size() > kLongestInput || !repl::Session::wants_more(input)) run();
  }
  return all;
}

void run_repl(const ReplOptions& options) try {
  std::setlocale(LC_CTYPE, "");
  const std::string path = model_path(options.model);
  // The device's threads begin here, and leave Ctrl-C to this one.
  auto interrupts = std::make_unique<Interrupts>();
  const auto device = create_device(options.device, options.threads);
  const auto tokenizer = load_tokenizer(path);
  const auto model = load_model(path, *device);
  repl::SessionOptions session_options;
  session_options.prompt = options.prompt.empty() ? task_prompt(options, path, *tokenizer, model->config()) : options.prompt;
  session_options.model = model_name(path);
  session_options.kv = *data_type_from_name(options.kv);
  session_options.place = {options.layer, options.head};
  session_options.style = terminal_style();
  session_options.interrupted = Interrupts::take;
  ReplServer server(options.access);
  session_options.server = &server;
  repl::Session session(*device, *model, *tokenizer, session_options);
  interrupts.reset();
  Input source(options, [&](std::string_view line) { return repl::complete(line, session.vocabulary()); });
  if (source.is_terminal()) fmt::print("{}:help lists what there is.\n", session.status());
  if (!converse(session, source) && options.strict) throw CLI::RuntimeError(1);
} catch (const repl::Interrupted&) {  // while the model read the prompt
  throw CLI::RuntimeError(kInterrupted);
}

}  // namespace

void add_repl(CLI::App& app) {
  auto options = std::make_shared<ReplOptions>();
  CLI::App* command = app.add_subcommand("repl", "Type parts of a flow and see their values on a real model's q, k and v");
  command->footer("Example: echo 'q:dot(c.k:mean(\"token\")):max(\"head\")' | sluice repl --layer 3 --strict");
  add_model(*command, options->model);
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--threads", options->threads, "0: all cores")->check(decimal_number(0, 1024))->capture_default_str();
  CLI::Option* prompt =
      command->add_option("--prompt", options->prompt, "Text that the model reads")
          ->check(
              CLI::Validator([](const std::string& text) { return text.empty() ? std::string("the prompt is empty") : ""; }, ""));
  command->add_option("--task", options->task, "Or a sample of this task (docs/TASKS.md)")
      ->capture_default_str()
      ->excludes(prompt);
  command->add_option("--tokens", options->tokens, "Tokens of the sample")
      ->check(decimal_number(1, kMostTokens))
      ->capture_default_str()
      ->excludes(prompt);
  command->add_option("--layer", options->layer, "Layer to look at")->check(decimal_number(0, 1024))->capture_default_str();
  command->add_option("--head", options->head, "KV head to look at")->check(decimal_number(0, 1024))->capture_default_str();
  command->add_option("--kv", options->kv, "Type of K and V: f32 (cpu) or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command->add_flag("--strict", options->strict, "Exit with 1 if any input was refused");
  command->add_flag("--no-history", options->no_history, "Neither read nor keep the history of lines");
  add_access(*command, options->access);
  command->callback([options] { run_repl(*options); });
}

}  // namespace sluice::cli
