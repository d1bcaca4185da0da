#pragma once

#include "kernels/device.h"

namespace sluice {

/// A pass of a device, from this object's construction to its end. An exception within the pass ends it as well, so that others
/// can go on using the device.
class OpenPass {
 public:
  /// Throws what `begin_pass` throws; no pass is open then.
  OpenPass(Device& device, const PassBatch& batch, Pool& pool) : device_(device) { device.begin_pass(batch, pool); }
  ~OpenPass() { device_.end_pass(); }
  OpenPass(const OpenPass&) = delete;
  OpenPass& operator=(const OpenPass&) = delete;

 private:
  Device& device_;
};

}  // namespace sluice
