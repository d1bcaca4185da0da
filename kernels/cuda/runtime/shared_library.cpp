#include "kernels/cuda/runtime/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

constexpr std::array<const char*, 3> kFolders = {SLUICE_CUDA_LIBRARY_DIR, "/usr/local/cuda/lib64",
                                                 "/usr/local/cuda/extras/CUPTI/lib64"};

void* open_library(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  for (const char* folder : kFolders) {
    for (const char* name : names) {
      if (void* library = dlopen(fmt::format("{}/{}", folder, name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

}  // namespace

SharedLibrary::SharedLibrary(std::string what, std::initializer_list<const char*> names, std::string hint)
    : what_(std::move(what)), hint_(std::move(hint)), handle_(open_library(names)) {
  if (handle_ == nullptr) {
    throw InputError(fmt::format("{} cannot be loaded: tried {} in the library path and in {}", what_, fmt::join(names, ", "),
                                 fmt::join(kFolders, ", ")),
                     hint_);
  }
}

void* SharedLibrary::address_of(const char* name) const {
  void* address = dlsym(handle_, name);
  if (address == nullptr) throw InputError(fmt::format("{} is too old on this machine: it lacks {}", what_, name), hint_);
  return address;
}

}  // namespace sluice::cuda
