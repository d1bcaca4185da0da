#include "kernels/device.h"

#include <fmt/format.h>

namespace sluice {

std::unique_ptr<Device> create_device(const std::string& name, int threads) {
  if (name == "cpu") return create_cpu_device({.threads = threads});
  if (name == "cuda") {
    throw InputError("device \"cuda\" does not run models yet: only its kernels exist, and sluice bench attention measures them",
                     "use --device cpu");
  }
  throw InputError(fmt::format("there is no device \"{}\"", name), "devices are cpu and cuda");
}

}  // namespace sluice
