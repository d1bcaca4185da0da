#pragma once

namespace sluice::cuda {

/// The stream of a device with kernels whose blocks wait for each other, of which all must be on the GPU at once. Where a process
/// has one such stream they will be, as every kernel around them ends without them: they may be launched like any other, and
/// begin while the kernel before them ends. Of two streams each could hold multiprocessors that the other lacks. Launches are
/// then cooperative: CUDA places their blocks all at once, once the GPU has nothing else to do. So they are where processes share
/// the GPU at the same time (CUDA's Multi-Process Service).
///
/// A gang counts from its first turn on, so that devices which only compile flows do not.
class Gang {
 public:
  Gang() = default;
  /// Waits for its kernels.
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  /// In its life, no answer of `cooperative` changes: kernels are launched, or graphs of them, within one. Those of a gang nest,
  /// and are of one thread at a time.
  class Turn {
   public:
    /// The first of a gang, if there are others, waits for their kernels, which were launched as if there were none. Throws
    /// InternalError if the GPU has failed.
    explicit Turn(Gang& gang);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Gang& gang_;
  };

  /// Whether launches must be. Within a turn.
  bool cooperative() const;

 private:
  void join();

  bool counts_ = false;
  int turns_ = 0;
};

}  // namespace sluice::cuda
