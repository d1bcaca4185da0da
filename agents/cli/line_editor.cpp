#include "agents/cli/line_editor.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "scripting/base/error.h"

namespace sluice::cli {

namespace {

namespace fs = std::filesystem;

constexpr int kHistoryLines = 1000;
constexpr const char* kProgram = "sluice";

void list(const std::vector<std::string>& candidates) {
  std::string line = "\n";
  for (const std::string& candidate : candidates) line += candidate + "  ";
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

LineEditor::LineEditor(std::string history_file, Completer completer)
    : history_file_(std::move(history_file)),
      completer_(std::move(completer)),
      history_(history_init(), history_end),
      editor_(el_init(kProgram, stdin, stdout, stderr), el_end) {
  if (!history_ || !editor_) throw InternalError("libedit cannot start");
  HistEvent event;
  ::history(history_.get(), &event, H_SETSIZE, kHistoryLines);
  ::history(history_.get(), &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) ::history(history_.get(), &event, H_LOAD, history_file_.c_str());
  EditLine* editor = editor_.get();
  el_set(editor, EL_CLIENTDATA, this);
  el_set(editor, EL_PROMPT, prompt_of);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, ::history, history_.get());
  el_set(editor, EL_ADDFN, "sluice-complete", "complete", complete);
  el_set(editor, EL_BIND, "^I", "sluice-complete", nullptr);
  // Ctrl-C is a key, also just before libedit begins to edit and after it; Interrupts makes a signal of it.
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
  el_set(editor, EL_SETTY, "-x", "-isig", nullptr);
  el_set(editor, EL_ADDFN, "sluice-interrupt", "drop the line", interrupt);
  el_set(editor, EL_BIND, "^C", "sluice-interrupt", nullptr);
}

LineEditor::~LineEditor() {
  if (history_file_.empty()) return;
  std::error_code ignored;
  fs::create_directories(fs::path(history_file_).parent_path(), ignored);
  HistEvent event;
  if (::history(history_.get(), &event, H_SAVE, history_file_.c_str()) < 0) {
    fmt::print(stderr, "warning: the history cannot be kept in {}; --no-history keeps none\n", history_file_);
  }
}

LineEditor& LineEditor::of(EditLine* editor) {
  void* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  return *static_cast<LineEditor*>(self);
}

char* LineEditor::prompt_of(EditLine* editor) { return of(editor).prompt_.data(); }

unsigned char LineEditor::complete(EditLine* editor, int) {
  const LineInfo* info = el_line(editor);
  const std::string_view line(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
  const repl::Completion completion = of(editor).completer_(line);
  if (completion.candidates.empty()) return CC_ERROR;
  const std::string more = repl::common_prefix(completion.candidates).substr(line.size() - completion.begin);
  if (!more.empty()) return el_insertstr(editor, more.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  if (completion.candidates.size() == 1) return CC_NORM;
  list(completion.candidates);
  return CC_REDISPLAY;
}

unsigned char LineEditor::interrupt(EditLine* editor, int) {
  of(editor).interrupted_ = true;
  return CC_NEWLINE;
}

void LineEditor::remember(const char* line) {
  HistEvent event;
  ::history(history_.get(), &event, H_ENTER, line);
}

std::optional<LineEditor::Line> LineEditor::read(const std::string& prompt) {
  prompt_ = prompt;
  interrupted_ = false;
  el_resize(editor_.get());
  int count = 0;
  const char* text = el_gets(editor_.get(), &count);
  if (interrupted_) {
    std::puts("^C");
    return Line{{}, true};
  }
  if (text == nullptr || count <= 0) return std::nullopt;
  std::string line(text, static_cast<size_t>(count));
  if (line.find_first_not_of(" \t\r\n") != std::string::npos) remember(line.c_str());
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return Line{std::move(line), false};
}

std::string history_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::string folder = variable("XDG_STATE_HOME");
  if (!fs::path(folder).is_absolute()) {  // the XDG specification ignores relative ones
    const std::string home = variable("HOME");
    if (home.empty()) return {};
    folder = home + "/.local/state";
  }
  return folder + "/sluice/repl_history";
}

}  // namespace sluice::cli
