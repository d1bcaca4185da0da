#pragma once

#include <string>

namespace sluice {

/// Told how far an evaluation is. What it does with that changes nothing about the evaluation.
class Progress {
 public:
  virtual ~Progress() = default;

  /// `work` is the number of `advance` units of the whole evaluation; it only shapes the bar.
  virtual void start(double work) = 0;
  /// What is being done now: "long", "needle_multiquery 4096", "quest".
  virtual void show(const std::string& stage, const std::string& task, const std::string& flow) = 0;
  virtual void advance(double work) = 0;
  /// A flow stopped early: its remaining work will not come.
  virtual void shrink(double work) = 0;
  virtual void finish() = 0;
};

}  // namespace sluice
