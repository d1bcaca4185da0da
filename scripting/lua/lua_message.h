#pragma once

#include <string>
#include <string_view>

struct lua_State;

namespace sluice {

/// What Lua says of a script: "flow:12: attempt to call a nil value (global 'topk')".
struct LuaMessage {
  int line = 0;  // 0: it names none
  std::string text;
  std::string hint;  // for functions that flows do not have
};

/// `chunk`: what the script is called in Lua's messages.
LuaMessage read_lua_message(std::string_view message, std::string_view chunk);

/// A message handler of lua_pcall: makes a text of an error that is none, with the line that raised it.
int tell_error(lua_State* state);

/// The line of the deepest expression of a source for which Lua's parser has no room, which names none; 0 where none is deep.
int most_nested_line(std::string_view source);

}  // namespace sluice
