#pragma once

#include <histedit.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "scripting/repl/completion.h"

namespace sluice::cli {

/// Lines from a terminal, edited by libedit: history, and completion by the tab key.
class LineEditor {
 public:
  /// What completes the part of a line before the cursor.
  using Completer = std::function<repl::Completion(std::string_view line)>;

  /// Reads the history from `history_file`; empty: it is neither read nor kept. Throws InternalError where libedit cannot start.
  LineEditor(std::string history_file, Completer completer);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  struct Line {
    std::string text;          // without its line break
    bool interrupted = false;  // by Ctrl-C: what was typed is not wanted
  };
  /// The next line, or nothing at the end of the input.
  std::optional<Line> read(const std::string& prompt);

 private:
  static LineEditor& of(EditLine* editor);
  static char* prompt_of(EditLine* editor);
  static unsigned char complete(EditLine* editor, int character);
  static unsigned char interrupt(EditLine* editor, int character);
  void remember(const char* line);

  std::string history_file_;
  Completer completer_;
  std::string prompt_;
  bool interrupted_ = false;
  std::unique_ptr<History, decltype(&history_end)> history_;
  std::unique_ptr<EditLine, decltype(&el_end)> editor_;
};

/// Where the REPL keeps its history: sluice/repl_history in $XDG_STATE_HOME, or in ~/.local/state. Empty without a home.
std::string history_file();

}  // namespace sluice::cli
