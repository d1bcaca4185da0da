#pragma once

#include <algorithm>
#include <limits>
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

/// A side stream for work on some layers of a group, which others wait for where they want one of these, or another group.
class LayerStream {
 public:
  /// As SideStream::begin. The work is on layers of the group from `first` on.
  Stream begin(int group, int first, Stream main) {
    if (group != group_) join(main);
    side_.begin(main);
    group_ = group;
    first_ = std::min(first_, first);
    return side_.stream();
  }
  void join(Stream main) noexcept {
    side_.join(main);
    group_ = kNone;
    first_ = std::numeric_limits<int>::max();
  }
  /// The same for the sake of one layer: nothing where there is no work on it.
  void join(int group, int layer, Stream main) noexcept {
    if (group_ != kNone && (group != group_ || layer >= first_)) join(main);
  }

 private:
  static constexpr int kNone = -1;

  SideStream side_;
  int group_ = kNone;
  int first_ = std::numeric_limits<int>::max();
};

}  // namespace sluice::cuda
