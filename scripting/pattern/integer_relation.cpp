#include "scripting/pattern/integer_relation.h"

#include <fmt/format.h>

#include <utility>

#include "scripting/base/error.h"

namespace sluice {

IntegerContext::IntegerContext(unsigned long most_operations) : context_(isl_ctx_alloc()), most_operations_(most_operations) {
  if (context_ == nullptr) throw std::bad_alloc();
  isl_options_set_on_error(context_.get(), ISL_ON_ERROR_CONTINUE);
  isl_ctx_set_max_operations(context_.get(), most_operations);
}

IslMap IntegerContext::read_map(const std::string& text) const {
  // Text takes little, and a parser that is stopped calls it a fault of the text.
  isl_ctx_set_max_operations(context_.get(), 0);
  IslMap map(isl_map_read_from_str(context_.get(), text.c_str()));
  isl_ctx_set_max_operations(context_.get(), most_operations_);
  return require(std::move(map));
}

void IntegerContext::fail() const {
  if (isl_ctx_last_error(context_.get()) == isl_error_quota) {
    throw InputError("the pattern is too complex to be analysed",
                     "fewer parts, fewer strides, or strides of which one divides the other");
  }
  const char* message = isl_ctx_last_error_msg(context_.get());
  throw InternalError(fmt::format("isl: {}", message != nullptr ? message : "an unknown fault"));
}

}  // namespace sluice
