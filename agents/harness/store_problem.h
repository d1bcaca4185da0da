#pragma once

#include "agents/http/http_problem.h"
#include "scripting/base/error.h"
#include "store/error.h"

namespace sluice {

/// What a caller is told of an error of the store. One that is our fault stays what it is: `error` is thrown again.
HttpProblem problem_of(const store::StoreError& error);
/// What a caller is told of a wrong input.
HttpProblem problem_of(const InputError& error);

/// The result of `work`, with refusals of the store and of the input as HttpProblem.
template <typename Work>
auto as_problems(const Work& work) {
  try {
    return work();
  } catch (const store::StoreError& error) {
    throw problem_of(error);
  } catch (const InputError& error) {
    throw problem_of(error);
  }
}

}  // namespace sluice
