#pragma once

#include <initializer_list>
#include <string>

namespace sluice::cuda {

/// One of the toolkit's libraries, loaded when it is first needed, so that the program starts on machines without it. It is
/// looked for in the library path, then where the toolkit that this was built with keeps its libraries, then where toolkits
/// usually do. It stays loaded.
class SharedLibrary {
 public:
  /// `what` begins the messages ("cuBLASLt, which multiplies by weights on the GPU,"), `hint` says what to install. Of the
  /// `names`
  /// ("libcublasLt.so.13") the first that is found counts. Throws InputError where none is.
  SharedLibrary(std::string what, std::initializer_list<const char*> names, std::string hint);

  /// Sets `function` to the function `name`. Throws InputError where the library, then too old, lacks it.
  template <typename Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;

  std::string what_;
  std::string hint_;
  void* handle_ = nullptr;
};

}  // namespace sluice::cuda
