#include "agents/cli/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace sluice::cli {
namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

repl::Style terminal_style() {
  repl::Style style;
  if (::isatty(STDOUT_FILENO) == 0) return style;
  const char* terminal = std::getenv("TERM");
  style.unicode = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  style.color = !is_set("NO_COLOR") && terminal != nullptr && std::string_view(terminal) != "dumb";
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

}  // namespace sluice::cli
