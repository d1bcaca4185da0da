#include "scripting/lua/lua_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <lua.hpp>
#include <utility>

#include "scripting/base/suggest.h"
#include "scripting/lua/functions.h"

namespace sluice {
namespace {

/// Functions of Lua that flows do not have, and what to do instead.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kMissing = {{
    {"print", "a flow is traced once and prints nothing; sluice check and sluice plan show what it became"},
    {"require", "a flow is one file"},
    {"io", "a flow reads and writes nothing"},
    {"os", "a flow sees no clock and no system"},
    {"load", "a flow is one file, and code cannot be made at run time"},
    {"pcall", "errors in a flow always end it"},
    {"setmetatable", "metatables are not available"},
    {"random", "use sluice.random(), seeded by request, layer, head and step"},
    {"coroutine", "coroutines are not available"},
    {"match", "text patterns are not available"},
    {"mass", "what attention gave is the third argument of flow.after(q, c, mass), which runs after it"},
}};

/// For "... (global 'topk')": Lua names what was nil.
std::string hint_for(std::string_view message) {
  if (message.starts_with("the script raised a ")) return "raise a text: error(\"...\")";
  const size_t open = message.find(" '");
  const size_t close = message.rfind('\'');
  if (message.find("nil value") == std::string_view::npos || open == std::string_view::npos || close <= open + 2) return {};
  const std::string name(message.substr(open + 2, close - open - 2));
  for (const auto& [missing, hint] : kMissing) {
    if (name == missing) return std::string(hint);
  }
  if (message.find("global") == std::string_view::npos) return {};
  if (find_function(name)) return fmt::format("write sluice.{}", name);
  const std::string meant = closest(name, {"sluice", "math", "string", "table", "pairs", "ipairs", "tostring", "tonumber"});
  return meant.empty() ? std::string() : fmt::format("did you mean \"{}\"?", meant);
}

}  // namespace

LuaMessage read_lua_message(std::string_view message, std::string_view chunk) {
  LuaMessage read;
  if (message.starts_with(chunk) && message.substr(chunk.size()).starts_with(':')) {
    const char* const end = message.data() + message.size();
    const auto parsed = std::from_chars(message.data() + chunk.size() + 1, end, read.line);
    if (parsed.ec == std::errc() && parsed.ptr + 1 < end && *parsed.ptr == ':')
      message.remove_prefix(static_cast<size_t>(parsed.ptr + 2 - message.data()));
  }
  read.text = message;
  read.hint = hint_for(message);
  return read;
}

int tell_error(lua_State* state) {
  if (lua_type(state, 1) == LUA_TSTRING) return 1;
  lua_Debug frame;
  for (int level = 1; lua_getstack(state, level, &frame) != 0; ++level) {
    luaL_where(state, level);
    if (lua_rawlen(state, -1) > 0) break;
    lua_pop(state, 1);
  }
  if (lua_gettop(state) == 1) lua_pushliteral(state, "");
  const bool is_ours = luaL_getmetafield(state, 1, "__name") == LUA_TSTRING;
  const char* const name = is_ours ? lua_tostring(state, -1) : luaL_typename(state, 1);
  lua_pushfstring(state, "%sthe script raised a %s as an error", lua_tostring(state, 2), name);
  return 1;
}

// Each bracket, each operator before an operand and each one that groups to the right takes of the parser's stack, which ends at
// about 200.
int most_nested_line(std::string_view source) {
  constexpr int kDeep = 100;
  int brackets = 0;
  int operators = 0;  // of the line
  int deepest = kDeep - 1;
  size_t place = std::string_view::npos;
  for (size_t i = 0; i < source.size(); ++i) {
    const std::string_view rest = source.substr(i);
    const char c = source[i];
    if (rest.starts_with("--")) {
      i = std::min(source.find('\n', i), source.size()) - 1;
      continue;
    }
    if (c == '"' || c == '\'') {
      while (++i < source.size() && source[i] != c && source[i] != '\n') i += source[i] == '\\' ? 1 : 0;
    }
    if (c == '\n') operators = 0;
    if (c == '(' || c == '[' || c == '{') ++brackets;
    if (c == ')' || c == ']' || c == '}') --brackets;
    if (c == '~' || c == '-' || c == '#' || c == '^' || rest.starts_with("..") || rest.starts_with("not ")) ++operators;
    if (brackets + operators <= deepest) continue;
    deepest = brackets + operators;
    place = i;
  }
  if (place == std::string_view::npos) return 0;
  return 1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
}

}  // namespace sluice
