#pragma once

#include <isl/ctx.h>
#include <isl/map.h>
#include <isl/options.h>
#include <isl/set.h>
#include <isl/val.h>

#include <memory>
#include <string>

namespace sluice {

/// Thin owners of what the library of integer sets (isl) makes. Its functions return null once the context has done as many
/// operations as it may; `IntegerContext::require` turns that into an error.
template <typename T, auto kFree>
struct IslDeleter {
  void operator()(T* pointer) const { kFree(pointer); }
};
using IslMap = std::unique_ptr<isl_map, IslDeleter<isl_map, isl_map_free>>;
using IslSet = std::unique_ptr<isl_set, IslDeleter<isl_set, isl_set_free>>;
using IslVal = std::unique_ptr<isl_val, IslDeleter<isl_val, isl_val_free>>;

/// What sets belong to, with a bound on the work that is done on them. Outlives them.
class IntegerContext {
 public:
  explicit IntegerContext(unsigned long most_operations);

  isl_ctx* get() const { return context_.get(); }
  IslMap read_map(const std::string& text) const;
  /// Throws InputError if the bound was passed, InternalError for any other fault, if `pointer` is null.
  template <typename Pointer>
  Pointer require(Pointer pointer) const {
    if (!pointer) fail();
    return pointer;
  }
  /// The same for what says yes or no.
  bool require(isl_bool answer) const {
    if (answer == isl_bool_error) fail();
    return answer == isl_bool_true;
  }
  /// The same for what returns a status.
  void require(isl_stat status) const {
    if (status != isl_stat_ok) fail();
  }

 private:
  [[noreturn]] void fail() const;

  std::unique_ptr<isl_ctx, IslDeleter<isl_ctx, isl_ctx_free>> context_;
  unsigned long most_operations_;
};

}  // namespace sluice
