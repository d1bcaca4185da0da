#include "kernels/device/picks.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

int Picks::begin(size_t rows) {
  if (begun_ - taken_ >= rows_.size()) throw InternalError("sample: results of two calls have not been taken");
  if (rows > static_cast<size_t>(most_rows_)) {
    throw InternalError(fmt::format("sample: {} rows, picks have room for {}", rows, most_rows_));
  }
  const auto place = static_cast<int>(begun_++ % 2);
  rows_[static_cast<size_t>(place)] = static_cast<int>(rows);
  return place;
}

int Picks::take(size_t rows) {
  if (taken_ == begun_) throw InternalError("take: nothing was sampled");
  const auto place = static_cast<int>(taken_ % 2);
  if (rows != static_cast<size_t>(rows_[static_cast<size_t>(place)])) {
    throw InternalError(fmt::format("take: {} rows, {} were sampled", rows, rows_[static_cast<size_t>(place)]));
  }
  ++taken_;
  return place;
}

}  // namespace sluice
