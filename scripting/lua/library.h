#pragma once

struct lua_State;

namespace sluice {

/// Puts the allow-listed part of Lua's library into the global table: base functions that can neither load code, catch errors,
/// see addresses nor set metatables; math without random; string without patterns; table. Every function that could run long
/// or allocate much in one instruction is capped, and pairs and next run in a fixed order. Raises Lua errors: call protected.
void install_library(lua_State* state);

}  // namespace sluice
