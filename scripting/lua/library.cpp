#include "scripting/lua/library.h"

#include <cstring>
#include <lua.hpp>
#include <string_view>

#include "scripting/lua/sandbox.h"

// Functions here are called by Lua and may raise Lua errors, which jump: they hold no objects with destructors.

namespace sluice {

namespace {

constexpr size_t kLongestText = size_t{1} << 20;  // that a library function takes or makes
constexpr lua_Unsigned kLongestList = 65536;      // that a library function works on
constexpr lua_Unsigned kLongestSort = 10000;      // comparing in C is not counted
constexpr int kMostUnpacked = 250;
constexpr int kLooksBetweenClock = 4096;

/// Runs the standard function in the first upvalue with the arguments as they are. Not as a call of its own: its errors then name
/// the function and the line as the script called it. None of the originals has upvalues, which would be those of the wrapper.
int call_original(lua_State* state) { return lua_tocfunction(state, lua_upvalueindex(1))(state); }

void check_texts(lua_State* state) {
  for (int i = 1; i <= lua_gettop(state); ++i) {
    if (lua_type(state, i) != LUA_TSTRING) continue;
    if (lua_rawlen(state, i) > kLongestText) luaL_error(state, "the text is longer than 1 MiB");
  }
}

int text_function(lua_State* state) {
  check_texts(state);
  return call_original(state);
}

int text_rep(lua_State* state) {
  size_t length = 0;
  size_t separator = 0;
  luaL_checklstring(state, 1, &length);
  const lua_Integer times = luaL_checkinteger(state, 2);
  luaL_optlstring(state, 3, "", &separator);
  const size_t each = length + separator;
  if (times > 0 && (each == 0 ? times > 1 : static_cast<lua_Unsigned>(times) > kLongestText / each)) {
    if (each == 0) {
      lua_pushliteral(state, "");
      return 1;
    }
    return luaL_error(state, "the repeated text would be longer than 1 MiB");
  }
  return call_original(state);
}

/// Tables and functions would print their addresses, which differ from run to run.
int text_format(lua_State* state) {
  check_texts(state);
  size_t length = 0;
  const char* text = luaL_checklstring(state, 1, &length);
  const std::string_view format(text, length);  // zeros do not end it
  for (size_t i = format.find('%'); i < format.size(); i = format.find('%', i + 1)) {
    const size_t conversion = format.find_first_of("%diuoxXaAeEfFgGcsqp", i + 1);
    if (conversion == std::string_view::npos) break;
    if (format[conversion] == 'p') return luaL_error(state, "%%p is not available");
    i = conversion;
  }
  for (int i = 2; i <= lua_gettop(state); ++i) {
    const int type = lua_type(state, i);
    if (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN && type != LUA_TNIL) {
      return luaL_error(state, "format takes texts, numbers and booleans, and got a %s", luaL_typename(state, i));
    }
  }
  return call_original(state);
}

int to_text(lua_State* state) {
  luaL_checkany(state, 1);
  const int type = lua_type(state, 1);
  if (type == LUA_TSTRING || type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TNIL) {
    luaL_tolstring(state, 1, nullptr);
  } else {
    const bool is_ours = type == LUA_TUSERDATA && luaL_getmetafield(state, 1, "__name") == LUA_TSTRING;
    const std::string_view name = is_ours ? lua_tostring(state, -1) : luaL_typename(state, 1);
    lua_pushstring(state, !is_ours ? luaL_typename(state, 1) : name.ends_with("pattern") ? "pattern" : "tensor");
  }
  return 1;
}

int list_function(lua_State* state) {
  luaL_checktype(state, 1, LUA_TTABLE);
  if (lua_rawlen(state, 1) > kLongestList) return luaL_error(state, "the list is longer than 65536");
  if (Sandbox::of(state).is_out_of_time()) return luaL_error(state, "out of time");
  return call_original(state);
}

/// Lua's own message of entries that do not compare has no line within a C function. Handles refuse to be compared themselves.
void check_order(lua_State* state, lua_Unsigned length) {
  int first = LUA_TNONE;
  for (lua_Unsigned i = 1; i <= length; ++i) {
    const int type = lua_rawgeti(state, 1, static_cast<lua_Integer>(i));
    lua_pop(state, 1);
    if (type == LUA_TUSERDATA) continue;
    if (first == LUA_TNONE) first = type;
    if (type == first && (type == LUA_TNUMBER || type == LUA_TSTRING)) continue;
    luaL_error(state, "entries to sort must be all numbers or all texts, and entry %d is a %s", static_cast<int>(i),
               lua_typename(state, type));
  }
}

int sort(lua_State* state) {
  luaL_checktype(state, 1, LUA_TTABLE);
  const lua_Unsigned length = lua_rawlen(state, 1);
  if (length > kLongestSort) return luaL_error(state, "a list to sort may have 10000 entries");
  // Comparing two texts takes time by their length, and a list may hold one long text many times.
  size_t characters = 0;
  for (lua_Unsigned i = 1; i <= length; ++i, lua_pop(state, 1)) {
    if (lua_rawgeti(state, 1, static_cast<lua_Integer>(i)) == LUA_TSTRING) characters += lua_rawlen(state, -1);
  }
  if (characters > kLongestText) return luaL_error(state, "the texts to sort are longer than 1 MiB together");
  if (lua_isnoneornil(state, 2) && length > 1) check_order(state, length);
  return call_original(state);
}

int unpack(lua_State* state) {
  luaL_checktype(state, 1, LUA_TTABLE);
  const lua_Integer first = luaL_optinteger(state, 2, 1);
  const lua_Integer last =
      lua_isnoneornil(state, 3) ? static_cast<lua_Integer>(lua_rawlen(state, 1)) : luaL_checkinteger(state, 3);
  if (first <= last && static_cast<lua_Unsigned>(last) - static_cast<lua_Unsigned>(first) >= kMostUnpacked) {
    return luaL_error(state, "more than 250 values to unpack");
  }
  return call_original(state);
}

/// Order of keys: numbers by value, then texts by bytes, then booleans. -1, 0, 1 as for strcmp.
int compare_keys(lua_State* state, int a, int b) {
  const auto rank = [state](int i) {
    const int type = lua_type(state, i);
    return type == LUA_TNUMBER ? 0 : type == LUA_TSTRING ? 1 : 2;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b) ? -1 : 1;
  if (rank(a) == 0) return lua_rawequal(state, a, b) ? 0 : lua_compare(state, a, b, LUA_OPLT) ? -1 : 1;
  if (rank(a) == 2) return lua_toboolean(state, a) - lua_toboolean(state, b);
  size_t a_length = 0;
  size_t b_length = 0;
  const char* a_text = lua_tolstring(state, a, &a_length);
  const char* b_text = lua_tolstring(state, b, &b_length);
  const int order = std::memcmp(a_text, b_text, a_length < b_length ? a_length : b_length);
  if (order != 0) return order < 0 ? -1 : 1;
  return a_length == b_length ? 0 : a_length < b_length ? -1 : 1;
}

/// next(table, key): the smallest key above `key`. Lua's own order differs from run to run, because its hashes are seeded
/// by addresses; a flow must give the same graph every time.
int ordered_next(lua_State* state) {
  luaL_checktype(state, 1, LUA_TTABLE);
  if (Sandbox::of(state).is_out_of_time()) return luaL_error(state, "out of time");
  lua_settop(state, 2);
  lua_pushnil(state);  // 3: best key so far
  lua_pushnil(state);  // 4: its value
  int looks = 0;
  for (lua_pushnil(state); lua_next(state, 1) != 0; lua_settop(state, 5)) {  // 5: key, 6: value
    const int type = lua_type(state, 5);
    if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TBOOLEAN) {
      return luaL_error(state, "a table with a %s as key has no fixed order", luaL_typename(state, 5));
    }
    if (++looks % kLooksBetweenClock == 0 && Sandbox::of(state).is_out_of_time()) return luaL_error(state, "out of time");
    if (!lua_isnil(state, 2) && compare_keys(state, 5, 2) <= 0) continue;
    if (!lua_isnil(state, 3) && compare_keys(state, 5, 3) >= 0) continue;
    lua_pushvalue(state, 5);
    lua_replace(state, 3);
    lua_copy(state, 6, 4);
  }
  lua_settop(state, 4);
  if (lua_isnil(state, 3)) return 1;  // the nil value in 4
  return 2;
}

int pairs(lua_State* state) {
  if (luaL_callmeta(state, 1, "__pairs") != 0) return 1;  // handles refuse it, saying what they are
  luaL_checktype(state, 1, LUA_TTABLE);
  lua_pushcfunction(state, ordered_next);
  lua_pushvalue(state, 1);
  lua_pushnil(state);
  return 3;
}

struct Entry {
  const char* name;
  lua_CFunction wrapper;  // null: the standard function itself
};

constexpr Entry kBase[] = {{"assert", nullptr}, {"error", nullptr},          {"ipairs", nullptr}, {"next", ordered_next},
                           {"pairs", pairs},    {"rawequal", nullptr},       {"rawget", nullptr}, {"rawlen", nullptr},
                           {"select", nullptr}, {"tonumber", text_function}, {"type", nullptr},   {"tostring", to_text}};
constexpr Entry kMath[] = {
    {"abs", nullptr},  {"ceil", nullptr},       {"cos", nullptr},  {"deg", nullptr}, {"exp", nullptr}, {"floor", nullptr},
    {"fmod", nullptr}, {"huge", nullptr},       {"log", nullptr},  {"max", nullptr}, {"min", nullptr}, {"maxinteger", nullptr},
    {"modf", nullptr}, {"mininteger", nullptr}, {"pi", nullptr},   {"rad", nullptr}, {"sin", nullptr}, {"sqrt", nullptr},
    {"tan", nullptr},  {"tointeger", nullptr},  {"type", nullptr}, {"ult", nullptr}};
constexpr Entry kString[] = {{"byte", text_function},    {"char", text_function},  {"format", text_format},
                             {"len", text_function},     {"lower", text_function}, {"rep", text_rep},
                             {"reverse", text_function}, {"sub", text_function},   {"upper", text_function}};
constexpr Entry kTable[] = {
    {"concat", list_function}, {"insert", list_function}, {"pack", nullptr}, {"remove", list_function}, {"sort", sort},
    {"unpack", unpack}};

/// Copies the listed entries of the table at `from` to the table at `to`, wrapped where a wrapper is given.
template <size_t n>
void copy_entries(lua_State* state, const Entry (&entries)[n], int from, int to) {
  for (const Entry& entry : entries) {
    lua_getfield(state, from, entry.name);
    if (entry.wrapper) lua_pushcclosure(state, entry.wrapper, 1);
    lua_setfield(state, to, entry.name);
  }
}

/// Replaces the global library `name`, opened by `open`, by its allow-listed entries.
template <size_t n>
void install(lua_State* state, const char* name, lua_CFunction open, const Entry (&entries)[n], int globals) {
  lua_pushcfunction(state, open);
  lua_pushstring(state, name);
  lua_call(state, 1, 1);
  lua_newtable(state);
  copy_entries(state, entries, lua_gettop(state) - 1, lua_gettop(state));
  lua_setfield(state, globals, name);
  lua_pop(state, 1);
}

/// ("x"):rep(...) must reach the capped functions too.
void redirect_text_methods(lua_State* state, int globals) {
  lua_pushliteral(state, "");
  lua_getmetatable(state, -1);
  lua_getfield(state, globals, "string");
  lua_setfield(state, -2, "__index");
  lua_pushliteral(state, "text");
  lua_setfield(state, -2, "__metatable");
  lua_pop(state, 2);
}

}  // namespace

void install_library(lua_State* state) {
  // The base library writes into the registered global table: open it into one that is thrown away.
  lua_newtable(state);
  const int globals = lua_gettop(state);
  lua_pushcfunction(state, luaopen_base);
  lua_call(state, 0, 1);
  copy_entries(state, kBase, lua_gettop(state), globals);
  lua_pop(state, 1);
  install(state, LUA_MATHLIBNAME, luaopen_math, kMath, globals);
  install(state, LUA_STRLIBNAME, luaopen_string, kString, globals);
  install(state, LUA_TABLIBNAME, luaopen_table, kTable, globals);
  redirect_text_methods(state, globals);
  lua_rawseti(state, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
}

}  // namespace sluice
