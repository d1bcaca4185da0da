#include "scripting/lua/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <lua.hpp>

#include "scripting/base/suggest.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/functions.h"
#include "scripting/lua/reader.h"

// Lua raises errors by longjmp, which skips destructors. So every C function here has two halves: `guarded` runs C++ that may
// throw and touches Lua only through calls that raise nothing; what it returns is plain data, and only then, with no object
// alive, results are pushed or the error is raised.

namespace sluice {

namespace {

// As Lua's own messages call them.
constexpr const char* kHandleType = "sluice value";
constexpr const char* kPatternType = "sluice pattern";
constexpr const char* kParts =
    "assign flow.cache, flow.index, flow.after, flow.recompute and flow.pattern; flow.variant(\"name\") begins another program";

Session& session_of(lua_State* state) { return **static_cast<Session**>(lua_getextraspace(state)); }

const Handle* handle_at(lua_State* state, int index) {
  // Every full userdata in the state is ours.
  return lua_type(state, index) == LUA_TUSERDATA ? static_cast<const Handle*>(lua_touserdata(state, index)) : nullptr;
}

int current_line(lua_State* state) {
  lua_Debug frame;
  for (int level = 0; lua_getstack(state, level, &frame) != 0; ++level) {
    if (lua_getinfo(state, "l", &frame) != 0 && frame.currentline > 0) return frame.currentline;
  }
  return 0;
}

/// Runs `body(session)`; false if it threw, with the failure kept in the session.
template <typename Body>
bool guarded(lua_State* state, Body body) noexcept {
  Session& session = session_of(state);
  session.builder().set_line(current_line(state));
  try {
    body(session);
    return true;
  } catch (const FlowError& error) {
    session.failure.emplace(error);
  } catch (const InputError& error) {
    session.failure.emplace(session.builder().where(), error.what(), error.hint());
  } catch (const std::exception& error) {
    session.failure.emplace(session.builder().where(), std::string("cannot be traced: ") + error.what());
  }
  return false;
}

int raise(lua_State* state) {
  lua_pushlightuserdata(state, &session_of(state));
  return lua_error(state);
}

int push_value(lua_State* state, const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNothing:
      return 0;
    case Value::Kind::kHandle:
      push_handle(state, value.handle);
      return 1;
    case Value::Kind::kInteger:
      lua_pushinteger(state, value.integer);
      return 1;
    case Value::Kind::kNumber:
      lua_pushnumber(state, value.number);
      return 1;
    case Value::Kind::kBoolean:
      lua_pushboolean(state, value.boolean ? 1 : 0);
      return 1;
    case Value::Kind::kText:
      lua_pushlstring(state, value.text.data(), value.text.size());
      return 1;
  }
  return 0;
}

/// A function of the list; the first upvalue is its row.
int call_function(lua_State* state) {
  const auto& function = *static_cast<const Function*>(lua_touserdata(state, lua_upvalueindex(1)));
  Value value;
  const bool done = guarded(state, [&](Session& session) {
    const std::vector<Datum> values = read_arguments(state);
    for (const Datum& each : values) require_own(session, each);
    value = function.run(Arguments(session.builder(), function.name, values), function);
  });
  return done ? push_value(state, value) : raise(state);
}

/// NAME of value.NAME.
std::string text_key(const Datum& key, const Handle& handle) {
  if (key.kind == Datum::Kind::kText) return key.text;
  const char* by = key.kind == Datum::Kind::kNumber ? "a number" : "anything but a name";
  switch (handle.kind) {
    case Handle::Kind::kCache:
      if (handle.program == Session::kRecompute)
        throw InputError(fmt::format("r cannot be indexed by {}", by), "what is known of copies has names: r.NAME");
      throw InputError(fmt::format("c cannot be indexed by {}", by), "fields have names: c.NAME");
    case Handle::Kind::kFlow:
      throw InputError(fmt::format("a flow cannot be indexed by {}", by), kParts);
    case Handle::Kind::kPatterns:
    case Handle::Kind::kPattern:
      throw InputError(fmt::format("a pattern cannot be indexed by {}", by));
    case Handle::Kind::kModule:
      throw InputError(fmt::format("sluice cannot be indexed by {}", by));
    default:
      throw InputError(fmt::format("a tensor cannot be indexed by {}", by),
                       "axes have names; reduce or mask_slice picks entries");
  }
}

/// sluice.NAME for names that are no functions.
Value module_member(Session& session, const std::string& name) {
  const GraphBuilder& builder = session.builder();
  if (name == "pattern") return {Value::Kind::kHandle, {Handle::Kind::kPatterns, Stage::kCache, 0}, 0};
  if (name == "page_size") {
    if (!builder.is_declared()) builder.fail("sluice.page_size is known once sluice.flow{...} has been called");
    return {Value::Kind::kInteger, {}, builder.graph().geometry.page};
  }
  builder.fail(fmt::format("sluice has no function \"{:.40}\"", name), did_you_mean(name, function_names(false)));
}

Value missing_member(Session& session, const Handle& handle, const std::string& name) {
  const GraphBuilder& builder = session.builder();
  if (handle.kind == Handle::Kind::kFlow) builder.fail(fmt::format("flow.{:.40} cannot be read", name), kParts);
  if (handle.kind == Handle::Kind::kPatterns || handle.kind == Handle::Kind::kPattern)
    builder.fail(fmt::format("sluice.pattern has no function \"{:.40}\"", name), did_you_mean(name, pattern_function_names()));
  const char* what = builder.joined(handle) ? "selections" : "tensors";
  builder.fail(fmt::format("{} have no operator \"{:.40}\"", what, name), did_you_mean(name, function_names(true)));
}

/// flow.variant("name"), also as flow:variant("name"): another program of the flow, which `layers` names.
int declare_variant(lua_State* state) {
  int id = 0;
  const bool done = guarded(state, [&](Session& session) {
    std::vector<Datum> values = read_arguments(state);
    const bool is_method = !values.empty() && values.front().kind == Datum::Kind::kHandle;
    if (is_method) values.erase(values.begin());
    if (values.size() != 1 || values.front().kind != Datum::Kind::kText || values.front().text.empty())
      session.own.fail("variant: wants a name", "local ends = flow.variant(\"ends\"), and layers = {[0] = \"ends\"}");
    const std::string& name = values.front().text;
    if (session.builder().stage()) session.builder().fail("variant: belongs at the top of the file, not inside a stage");
    if (name == "full" || name == "sparse")
      session.own.fail(fmt::format("variant: \"{}\" has a meaning of its own in layers", name));
    for (const GraphBuilder& known : session.variants) {
      if (known.graph().variant == name)
        session.own.fail(fmt::format("variant: \"{:.40}\" is declared already, in line {}", name, known.graph().where.line));
    }
    if (session.variants.size() > static_cast<size_t>(GraphLimits::kVariants))
      session.own.fail(fmt::format("variant: a flow has at most {}", GraphLimits::kVariants + 1));
    session.variants.push_back(session.own.make_variant(name));
    session.references.push_back(LUA_NOREF);
    id = static_cast<int>(session.variants.size());
  });
  if (!done) return raise(state);
  push_handle(state, {Handle::Kind::kFlow, Stage::kCache, id});
  lua_pushvalue(state, -1);
  session_of(state).references[static_cast<size_t>(id) - 1] = luaL_ref(state, LUA_REGISTRYINDEX);
  return 1;
}

/// value.NAME for all our userdata; the first upvalue is the table of functions by name.
int index_handle(lua_State* state) {
  const Handle handle = *handle_at(state, 1);
  if (lua_type(state, 2) == LUA_TSTRING && handle.kind != Handle::Kind::kCache && handle.kind != Handle::Kind::kFlow) {
    lua_pushvalue(state, 2);
    if (lua_rawget(state, lua_upvalueindex(1)) != LUA_TNIL) return 1;
    lua_pop(state, 1);
  }
  Value value;
  bool is_variant = false;
  const bool done = guarded(state, [&](Session& session) {
    const std::string name = text_key(read_datum(state, 2), handle);
    require_own(session, read_datum(state, 1));
    is_variant = handle.kind == Handle::Kind::kFlow && name == "variant";
    if (is_variant && handle.id > 0)
      session.builder().fail("a variant has no variants", "flow.variant(\"name\") declares them all");
    if (is_variant) return;
    if (handle.kind == Handle::Kind::kCache) {
      value = {Value::Kind::kHandle, session.builder().read_member(name), 0};
    } else {
      value = handle.kind == Handle::Kind::kModule ? module_member(session, name) : missing_member(session, handle, name);
    }
  });
  if (done && is_variant) {
    lua_pushcfunction(state, declare_variant);
    return 1;
  }
  return done ? push_value(state, value) : raise(state);
}

/// Which user value of the flow holds a part's function.
int slot_of(FlowPart part) { return 1 + static_cast<int>(part); }

struct PartForm {
  std::string_view name;
  FlowPart part;
  const char* form;
};
constexpr std::array kPartForms = {
    PartForm{"cache", FlowPart::kCache, "function flow.cache(c) ... end"},
    PartForm{"index", FlowPart::kIndex, "function flow.index(q, c) ... end"},
    PartForm{"after", FlowPart::kAfter, "function flow.after(q, c, mass) ... end"},
    PartForm{"recompute", FlowPart::kRecompute, "function flow.recompute(r) ... end"},
};

/// `program`: 0, the flow, or a variant's.
FlowPart check_part_assignment(const Session& session, int program, const std::string& name, int type) {
  const GraphBuilder& builder = session.builder();
  const auto known = std::find_if(kPartForms.begin(), kPartForms.end(), [&](const PartForm& each) { return each.name == name; });
  if (known == kPartForms.end()) {
    builder.fail(fmt::format("a flow has no part \"{:.40}\"", name),
                 did_you_mean(name, {"cache", "index", "after", "recompute", "pattern"}));
  }
  if (known->part == FlowPart::kRecompute && program != 0)
    builder.fail("a variant has no recompute: what is copied has all layers", "function flow.recompute(r) ... end");
  if (builder.stage()) builder.fail(fmt::format("flow.{} is assigned at the top of the file, not inside a stage", name));
  if (type != LUA_TFUNCTION) builder.fail(fmt::format("flow.{} must be a function", name), known->form);
  return known->part;
}

/// value.NAME = x: fields of c, the functions of the flow and its pattern.
int assign_handle(lua_State* state) {
  const Handle handle = *handle_at(state, 1);
  int slot = 0;  // of the flow, for a stage's function
  const bool done = guarded(state, [&](Session& session) {
    const std::string name = text_key(read_datum(state, 2), handle);
    require_own(session, read_datum(state, 1));
    if (handle.kind == Handle::Kind::kCache) {
      const Datum assigned = read_datum(state, 3);
      require_own(session, assigned);
      session.builder().assign_member(name, assigned);
    } else if (handle.kind == Handle::Kind::kFlow && name == "pattern") {
      if (session.builder().stage())
        session.builder().fail("flow.pattern is assigned at the top of the file, not inside a stage");
      GraphBuilder& builder = session.builder_of(handle.id);
      builder.set_line(session.own.where().line);
      builder.assign_pattern(read_datum(state, 3));
    } else if (handle.kind == Handle::Kind::kFlow) {
      slot = slot_of(check_part_assignment(session, handle.id, name, lua_type(state, 3)));
    } else {
      session.builder().fail(fmt::format("\"{:.40}\" cannot be assigned here", name),
                             "tensors and patterns never change; operators give new ones");
    }
  });
  if (!done) return raise(state);
  if (slot > 0) {
    lua_pushvalue(state, 3);
    lua_setiuservalue(state, 1, slot);
  }
  return 0;
}

Value negate(const Arguments& arguments, const Function&) {
  const NodeId x = arguments.tensor(0);
  GraphBuilder& builder = arguments.builder();
  return tensor_value(arguments, builder.emit(Op::kMul, {x, builder.constant(-1)}));
}

Value refuse_comparison(const Arguments& arguments, const Function&) {
  arguments.fail("tensors have no value while a flow is traced, so Lua cannot compare them",
                 "choose entry by entry with where_gt(a, b, x, y) and its kin");
}

Value refuse_operator(const Arguments& arguments, const Function&) {
  arguments.fail("tensors have no such Lua operator", "there are + - * / and the functions of sluice");
}

Value refuse_traversal(const Arguments& arguments, const Function&) {
  arguments.fail(fmt::format("wants a table and got {}", arguments.describe(0)),
                 "operators work on all entries at once; a Lua loop can count, for i = 1, x:extent(\"dim\"), or go over a table");
}

constexpr std::array kNegate = {Function{"unary minus", negate}};

struct Metamethod {
  const char* name;
  Function function;
};

const Metamethod* refused_metamethods(size_t* count) {
  static constexpr std::array kRefused = {
      Metamethod{"__eq", {"==", refuse_comparison}},   Metamethod{"__lt", {"<", refuse_comparison}},
      Metamethod{"__le", {"<=", refuse_comparison}},   Metamethod{"__mod", {"%", refuse_operator}},
      Metamethod{"__pow", {"^", refuse_operator}},     Metamethod{"__idiv", {"//", refuse_operator}},
      Metamethod{"__concat", {"..", refuse_operator}}, Metamethod{"__len", {"#", refuse_operator}},
      Metamethod{"__call", {"call", refuse_operator}}, Metamethod{"__band", {"&", refuse_operator}},
      Metamethod{"__bor", {"|", refuse_operator}},     Metamethod{"__bxor", {"~", refuse_operator}},
      Metamethod{"__bnot", {"~", refuse_operator}},    Metamethod{"__shl", {"<<", refuse_operator}},
      Metamethod{"__shr", {">>", refuse_operator}},    Metamethod{"__pairs", {"pairs", refuse_traversal}},
  };
  *count = kRefused.size();
  return kRefused.data();
}

void push_function(lua_State* state, const Function* function) {
  lua_pushlightuserdata(state, const_cast<Function*>(function));
  lua_pushcclosure(state, call_function, 1);
}

void set_metamethod(lua_State* state, int metatable, const char* name, const Function* function) {
  push_function(state, function);
  lua_setfield(state, metatable, name);
}

/// Pushes a table of functions by name.
void push_functions(lua_State* state, std::span<const Function> functions) {
  lua_newtable(state);
  for (const Function& function : functions) {
    push_function(state, &function);
    // Names are parts of literals, hence end with a zero.
    lua_setfield(state, -2, function.name.data());
  }
}

/// Pushes the metatable of a type, with what all types have. The table of functions by name is at `by_name`.
void push_metatable(lua_State* state, const char* type, int by_name) {
  luaL_newmetatable(state, type);
  lua_pushvalue(state, by_name);
  lua_pushcclosure(state, index_handle, 1);
  lua_setfield(state, -2, "__index");
  lua_pushcfunction(state, assign_handle);
  lua_setfield(state, -2, "__newindex");
  lua_pushliteral(state, "sluice");
  lua_setfield(state, -2, "__metatable");
}

void install_handles(lua_State* state) {
  push_functions(state, functions());
  push_metatable(state, kHandleType, lua_gettop(state));
  const int metatable = lua_gettop(state);
  for (const auto& [name, function] : {std::pair{"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"}, {"__div", "div"}}) {
    set_metamethod(state, metatable, name, find_function(function));
  }
  set_metamethod(state, metatable, "__unm", kNegate.data());
  size_t count = 0;
  const Metamethod* refused = refused_metamethods(&count);
  for (size_t i = 0; i < count; ++i) set_metamethod(state, metatable, refused[i].name, &refused[i].function);
  lua_pop(state, 2);
}

void install_patterns(lua_State* state) {
  push_functions(state, pattern_functions());
  push_metatable(state, kPatternType, lua_gettop(state));
  const int metatable = lua_gettop(state);
  for (const PatternOperator& each : pattern_operators()) set_metamethod(state, metatable, each.name, &each.function);
  lua_pop(state, 2);
}

}  // namespace

void push_handle(lua_State* state, const Handle& handle) {
  constexpr auto kUserValues = static_cast<int>(kPartForms.size());  // a flow's functions
  auto* target =
      static_cast<Handle*>(lua_newuserdatauv(state, sizeof(Handle), handle.kind == Handle::Kind::kFlow ? kUserValues : 0));
  *target = handle;
  target->program = session_of(state).program;
  const bool is_pattern = handle.kind == Handle::Kind::kPattern || handle.kind == Handle::Kind::kPatterns;
  luaL_setmetatable(state, is_pattern ? kPatternType : kHandleType);
}

void require_own(const Session& session, const Datum& value) {
  for (const DatumEntry& entry : value.entries) require_own(session, entry.value);
  if (value.kind != Datum::Kind::kHandle || value.handle.program == session.program) return;
  switch (value.handle.kind) {
    case Handle::Kind::kFlow:
    case Handle::Kind::kModule:
    case Handle::Kind::kPatterns:
    case Handle::Kind::kPattern:
      return;
    default:
      if (session.program == Session::kRecompute)
        throw InputError("a value that another function computed", "flow.recompute sees what is known of copies, r.NAME");
      if (value.handle.program == Session::kRecompute)
        throw InputError("a value of flow.recompute", "it is gone once flow.recompute has returned");
      throw InputError("a value that another variant computed",
                       "each variant has stages of its own, and fields that they assign");
  }
}

void push_variant(lua_State* state, const Session& session, int id) {
  lua_rawgeti(state, LUA_REGISTRYINDEX, session.references[static_cast<size_t>(id) - 1]);
}

void push_part(lua_State* state, int flow, FlowPart part) { lua_getiuservalue(state, flow, slot_of(part)); }

void install_bridge(lua_State* state, Session& session) {
  *static_cast<Session**>(lua_getextraspace(state)) = &session;
  install_handles(state);
  install_patterns(state);
  push_handle(state, {Handle::Kind::kModule, Stage::kCache, 0});
  lua_setglobal(state, "sluice");
}

}  // namespace sluice
