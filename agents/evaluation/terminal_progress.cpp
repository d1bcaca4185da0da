#include "agents/evaluation/terminal_progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "scripting/base/printable_text.h"
namespace sluice {
namespace {

constexpr int kBar = 24;  // characters

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Where nobody can read it, nothing is lost.
void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

TerminalProgress::TerminalProgress() : terminal_(isatty(STDERR_FILENO) == 1), started_(std::chrono::steady_clock::now()) {}

TerminalProgress::~TerminalProgress() { remove_bar(); }

void TerminalProgress::start(double work) {
  total_ = work;
  started_ = std::chrono::steady_clock::now();
}

void TerminalProgress::show(const std::string& stage, const std::string& task, const std::string& flow) {
  const bool news = stage != stage_ || task != task_;
  stage_ = stage;
  task_ = task;
  flow_ = flow;
  if (terminal_) {
    draw();
  } else if (news) {
    say(printable(fmt::format("{}{}{}\n", stage_, task_.empty() ? "" : ": ", task_)));
  }
}

void TerminalProgress::advance(double work) {
  done_ += work;
  if (terminal_) draw();
}

void TerminalProgress::shrink(double work) { total_ = std::max(done_, total_ - work); }

void TerminalProgress::draw() {
  const double share = total_ > 0 ? std::clamp(done_ / total_, 0.0, 1.0) : 0;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  std::string bar;
  for (int i = 0; i < kBar; ++i) bar += i < share * kBar ? '#' : '.';
  // Early estimates are noise.
  const std::string left = share > 0.05 ? fmt::format(", {:.0f} s left", elapsed / share * (1 - share)) : std::string();
  std::string line =
      fmt::format("[{}] {:3.0f}%{}  {}  {}  {}", bar, 100 * share, left, printable(stage_), printable(task_), printable(flow_));
  const size_t columns = terminal_columns();
  if (line.size() >= columns) line.resize(columns - 1);
  say("\r\x1b[K" + line);
  drawn_ = true;
}

void TerminalProgress::finish() { remove_bar(); }

void TerminalProgress::remove_bar() {
  if (drawn_) say("\r\x1b[K");
  drawn_ = false;
}

}  // namespace sluice
