#pragma once

#include "kernels/reference/oracle.h"
#include "kernels/reference/oracle_operators.h"

namespace sluice::oracle {

/// A tensor of one number, as float32 holds it; all extents are known.
Tensor filled(Shape shape, double value);
/// The shape of a tensor of `pages` pages.
Shape concrete(Shape shape, int pages);

/// A state for `pages` pages: what was saved, and the initial value where nothing was.
Tensor state_for(const State& state, const States& states, int pages);
/// One page of a state.
Tensor state_of_page(const State& state, const States& states, int page);
/// What is saved for tokens that do not exist yet is the initial value.
Tensor without_future(Tensor tensor, const State& state, const Tokens& tokens);
/// The oldest `pages` pages of a state that keeps each of them once: as they were saved, and the others from `value`.
Tensor with_leaving_pages(const State& state, const States& states, const Tensor& value, int pages);
/// Puts what a step has saved in the place of what was there.
void keep(const States& saved, States& states);

}  // namespace sluice::oracle
