#pragma once

#include <chrono>
#include <string>

namespace sluice {

/// Tells a person how far an evaluation is, on stderr: a bar that redraws itself on a terminal, a line a stage and task
/// elsewhere. If stderr cannot be written, it stays silent: the evaluation is the same.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `work` is the number of `advance` units of the whole evaluation; it only shapes the bar.
  void start(double work);
  /// What is being done now: "long", "needle_multikey 4096", "quest".
  void show(const std::string& stage, const std::string& task, const std::string& flow);
  void advance(double work);
  /// A flow stopped early: its remaining work will not come.
  void shrink(double work);
  /// Removes the bar.
  void finish();

 private:
  void draw();

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
