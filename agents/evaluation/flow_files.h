#pragma once

#include <string>
#include <vector>

namespace sluice {

/// Where the flows that ship with Sluice lie: beside the program, in the source tree that it was built from, or in
/// ../share/sluice/flows of an installation; empty if in none of them.
std::string shipped_flows_directory();

/// Names of the shipped flows (without .lua), sorted: those that look at the query.
std::vector<std::string> shipped_flows();
/// Of those that have a static pattern, alone or beside a selection.
std::vector<std::string> shipped_pattern_flows();

/// The file for `flow`: a path that exists, or the name of a shipped flow. Throws InputError that lists the shipped names.
std::string find_flow(const std::string& flow);

}  // namespace sluice
