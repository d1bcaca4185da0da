#pragma once

namespace sluice {

/// SIGINT and SIGTERM, as a wish to stop instead of an end. To be made before any other thread is: threads inherit that they
/// do not take these signals.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Waits for the first of them. A second one then ends the process, as usual.
  static void wait();
};

}  // namespace sluice
