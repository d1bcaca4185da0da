#pragma once

#include <string>
#include <string_view>

namespace sluice {

/// What Lua says of a script: "flow:12: attempt to call a nil value (global 'topk')".
struct LuaMessage {
  int line = 0;  // 0: it names none
  std::string text;
  std::string hint;  // for functions that flows do not have
};

/// `chunk`: what the script is called in Lua's messages.
LuaMessage read_lua_message(std::string_view message, std::string_view chunk);

}  // namespace sluice
