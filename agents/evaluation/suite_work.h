#pragma once

#include "agents/evaluation/suite.h"

namespace sluice {

// How much work a suite is, for those who show how far it is. One unit: the tokens of a prompt prefilled, or decoded against by
// one answerer (about an eighth of that work).

double prefill_work(const SuiteTask& task);
/// Of one answerer.
double decode_work(const SuiteTask& task);
/// Of one flow that is timed.
double speed_work(const Suite& suite, const SuiteTask& task);
/// Of all tasks, if `flows` flows stay in to the end.
double planned_work(const Suite& suite, size_t flows);

}  // namespace sluice
