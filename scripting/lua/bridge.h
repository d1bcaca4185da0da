#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "scripting/lua/builder.h"

struct lua_State;

namespace sluice {

/// What the C functions of one script share; the state's extra space points at it.
struct Session {
  GraphBuilder own;
  std::optional<FlowError> failure = {};  // set before a Lua error is raised on our behalf
  /// Programs beside the flow's own (flow.variant), and where Lua keeps their values.
  std::deque<GraphBuilder> variants = {};
  std::vector<int> references = {};
  std::optional<GraphBuilder> recompute = {};  // while flow.recompute runs
  static constexpr int kRecompute = -1;
  int program = 0;  // whose stage runs: 0, the flow's own, 1 + the place of a variant, or kRecompute

  GraphBuilder& builder() { return program == kRecompute ? *recompute : builder_of(program); }
  const GraphBuilder& builder() const { return const_cast<Session*>(this)->builder(); }
  /// Of a flow's handle, or a variant's, by its id.
  GraphBuilder& builder_of(int id) { return id == 0 ? own : variants[static_cast<size_t>(id) - 1]; }
};

/// Puts `sluice` into the global table and prepares the types of our userdata. Raises Lua errors: call protected.
void install_bridge(lua_State* state, Session& session);

/// Pushes a userdata holding `handle`. Raises Lua errors.
void push_handle(lua_State* state, const Handle& handle);

/// Tensors, selections and states are of one graph: throws InputError for those of another program than the one that runs.
void require_own(const Session& session, const Datum& value);

/// Pushes the value of a variant, which the script declared.
void push_variant(lua_State* state, const Session& session, int id);

/// The parts of a flow that are functions.
enum class FlowPart : uint8_t { kCache, kIndex, kAfter, kRecompute };
constexpr FlowPart part_of(Stage stage) { return static_cast<FlowPart>(stage); }

/// The function that the script assigned to a part of the flow; pushes it, or nil. `flow` is the flow's stack index.
void push_part(lua_State* state, int flow, FlowPart part);

}  // namespace sluice
