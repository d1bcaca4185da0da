#pragma once

#include <string>
#include <vector>

namespace sluice {

/// Where the flows that ship with Sluice lie: beside the program, in the source tree that it was built from, or in
/// ../share/sluice/flows of an installation; empty if in none of them.
std::string shipped_flows_directory();

/// Names of the shipped flows (without .lua), sorted: those that select pages and nothing else, or those of a folder beside them:
/// "patterns" (a static pattern, alone or beside a selection), "covers" (summaries of what is not selected), "masses" (selection
/// by what attention gave), "eviction" (tokens that leave).
std::vector<std::string> shipped_flows(const std::string& folder = {});

/// The file for `flow`: a path that exists, or the name of a shipped flow. Throws InputError that lists the shipped names.
std::string find_flow(const std::string& flow);

}  // namespace sluice
