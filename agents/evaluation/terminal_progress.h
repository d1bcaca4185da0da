#pragma once

#include <chrono>
#include <string>

#include "agents/evaluation/progress.h"

namespace sluice {

/// Tells a person how far an evaluation is, on stderr: a bar that redraws itself on a terminal, a line a stage and task
/// elsewhere. If stderr cannot be written, it stays silent.
class TerminalProgress final : public Progress {
 public:
  TerminalProgress();
  ~TerminalProgress() override;
  TerminalProgress(const TerminalProgress&) = delete;
  TerminalProgress& operator=(const TerminalProgress&) = delete;

  void start(double work) override;
  void show(const std::string& stage, const std::string& task, const std::string& flow) override;
  void advance(double work) override;
  void shrink(double work) override;
  /// Removes the bar.
  void finish() override;

 private:
  void draw();
  void remove_bar();

  bool terminal_;
  double total_ = 0;
  double done_ = 0;
  std::string stage_;
  std::string task_;
  std::string flow_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace sluice
