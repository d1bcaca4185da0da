#pragma once

#include <string>

namespace sluice::store {

/// Whether an equipment is what the settings of submission `s` ask for, as SQL: its device, its model's digest and its model are
/// parameters from number `first` on. What settings leave open any equipment meets.
std::string is_suited_sql(int first);

}  // namespace sluice::store
