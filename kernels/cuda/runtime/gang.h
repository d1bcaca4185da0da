#pragma once

#include <shared_mutex>

namespace sluice::cuda {

/// The stream of a device with kernels whose blocks wait for each other, of which all must be on the GPU at once. Where a process
/// has one such stream they will be, as every kernel around them ends without them: they may be launched like any other, and
/// begin while the kernel before them ends. Of two streams each could hold multiprocessors that the other lacks. Launches are
/// then cooperative: CUDA places their blocks all at once, once the GPU has nothing else to do. So they are where processes share
/// the GPU at the same time (`is_gpu_shared`).
///
/// What is counted is of the process, as the GPU is. A gang counts from its first launches on, so that devices which only compile
/// flows do not. The lock is taken before that of recordings: nothing in the life of a NoRecording launches as a gang.
class Gang {
 public:
  Gang();
  /// Waits for its kernels.
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  /// In its life, no answer of `cooperative` changes: kernels are launched, or graphs of them, within one. Those of a gang nest,
  /// and are of one thread at a time.
  class Launches {
   public:
    /// The first of a gang, if there is one other, waits for its kernels, which were launched as if there were none. Throws
    /// InternalError if the GPU has failed.
    explicit Launches(Gang& gang);
    ~Launches();
    Launches(const Launches&) = delete;
    Launches& operator=(const Launches&) = delete;

   private:
    Gang& gang_;
    std::shared_lock<std::shared_mutex> lock_;  // of the outermost
  };

  /// Whether launches must be. Within Launches.
  bool cooperative() const;
  /// Whether they always must, since processes share the GPU.
  bool always_cooperative() const { return shares_gpu_; }

 private:
  void join();

  bool shares_gpu_;
  bool counts_ = false;
  int depth_ = 0;  // of launches
};

}  // namespace sluice::cuda
