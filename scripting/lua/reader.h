#pragma once

#include <vector>

#include "scripting/lua/value.h"

struct lua_State;

namespace sluice {

// Copies values out of Lua by calls that raise no Lua error, so that C++ objects may be alive meanwhile.

/// The value at `index`. Throws InputError for texts and tables that are too large, and tables nested too deeply.
Datum read_datum(lua_State* state, int index);

/// Everything on the stack of a C function: its arguments. Throws InputError as above.
std::vector<Datum> read_arguments(lua_State* state);

}  // namespace sluice
