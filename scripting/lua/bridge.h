#pragma once

#include <optional>

#include "scripting/lua/builder.h"

struct lua_State;

namespace sluice {

/// What the C functions of one script share; the state's extra space points at it.
struct Session {
  GraphBuilder builder;
  std::optional<FlowError> failure;  // set before a Lua error is raised on our behalf
};

/// Puts `sluice` into the global table and prepares the types of our userdata. Raises Lua errors: call protected.
void install_bridge(lua_State* state, Session& session);

/// Pushes a userdata holding `handle`. Raises Lua errors.
void push_handle(lua_State* state, const Handle& handle);

/// The function that the script assigned to a stage of the flow; pushes it, or nil. `flow` is the flow's stack index.
void push_stage_function(lua_State* state, int flow, Stage stage);

}  // namespace sluice
