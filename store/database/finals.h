#pragma once

#include <string>
#include <vector>

#include "store/database/sqlite.h"
#include "store/database/standings.h"
#include "store/records.h"

// A submission that passed has a final: the same script with the settings of another model, a submission of its own.

namespace sluice::store {

/// Of submissions, or of those whose verdict they share; `ids` is a JSON list of them. By submission, with metrics of whole
/// evaluations: all, or the one that `metric` names.
std::vector<Final> finals_of(Database& database, const std::string& ids, const std::string& metric = {});

/// Whether it says something of the flow: who cancels it, a machine that fails and a machine that is slow do not.
bool is_verdict(Status status);

/// Gives standings by a metric of the first model their places: those that passed their final by its metric, then those that
/// have no verdict there yet, then the others.
void place_by_finals(Database& database, const Ranking& ranking, std::vector<Standing>& standings);

}  // namespace sluice::store
