#include "host/serving/idle_pages.h"

#include <fmt/format.h>

#include "scripting/base/error.h"

namespace sluice {

void IdlePages::add(int32_t page) {
  links_[static_cast<size_t>(page)] = {newest_, kNone, true};
  (newest_ == kNone ? oldest_ : links_[static_cast<size_t>(newest_)].newer) = page;
  newest_ = page;
  ++count_;
}

void IdlePages::remove(int32_t page) {
  Link& link = links_[static_cast<size_t>(page)];
  if (!link.idle) throw InternalError(fmt::format("page {} is not idle", page));
  (link.older == kNone ? oldest_ : links_[static_cast<size_t>(link.older)].newer) = link.newer;
  (link.newer == kNone ? newest_ : links_[static_cast<size_t>(link.newer)].older) = link.older;
  link = {};
  --count_;
}

}  // namespace sluice
