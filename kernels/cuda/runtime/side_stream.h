#pragma once

#include <memory>

struct CUevent_st;
struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;

/// A stream for work that goes on beside that of another one, which then waits for it. May be part of what is recorded there, if
/// it has joined before the recording ends.
class SideStream {
 public:
  SideStream();

  /// What is queued here from now on begins once all that has been queued on `main` has ended.
  void begin(Stream main);
  Stream stream() const { return stream_.get(); }
  /// What is queued on `main` from now on begins once all that is queued here has ended. Nothing where nothing was.
  void join(Stream main) noexcept;

 private:
  struct DestroyStream {
    void operator()(CUstream_st* stream) const;
  };
  struct DestroyEvent {
    void operator()(CUevent_st* event) const;
  };
  using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

  static Event create_event();

  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  Event begun_;
  Event ended_;
  bool is_busy_ = false;
};

}  // namespace sluice::cuda
