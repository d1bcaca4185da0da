#include "scripting/repl/chunk.h"

#include <charconv>
#include <lua.hpp>
#include <memory>

#include "scripting/base/error.h"
#include "scripting/repl/tokens.h"

namespace sluice::repl {

namespace {

constexpr const char* kChunkName = "=input";
constexpr std::string_view kChunkPrefix = "input:";

/// Lua's message for what cannot be parsed, or empty.
std::string parse(lua_State* state, const std::string& text) {
  const int status = luaL_loadbufferx(state, text.data(), text.size(), kChunkName, "t");
  size_t length = 0;
  const char* message = status == LUA_OK ? nullptr : lua_tolstring(state, -1, &length);
  std::string result(message != nullptr ? message : "", length);
  lua_settop(state, 0);
  return result;
}

Chunk wrong(std::string_view message) {
  Chunk chunk{ChunkKind::kWrong, 0, {}};
  if (message.starts_with(kChunkPrefix)) {
    message.remove_prefix(kChunkPrefix.size());
    const auto parsed = std::from_chars(message.data(), message.data() + message.size(), chunk.line);
    message.remove_prefix(static_cast<size_t>(parsed.ptr - message.data()));
    if (message.starts_with(": ")) message.remove_prefix(2);
  }
  chunk.message = message;
  return chunk;
}

}  // namespace

Chunk classify(std::string_view text) {
  const std::unique_ptr<lua_State, decltype(&lua_close)> state(luaL_newstate(), lua_close);
  if (!state) throw InternalError("cannot create a Lua state");
  const std::string statements = parse(state.get(), std::string(text));
  if (statements.empty() && tokens_of(text).empty()) return {};
  // A call is both; its value is wanted.
  if (parse(state.get(), "return " + std::string(text)).empty()) return {ChunkKind::kExpression, 0, {}};
  if (statements.empty()) return {ChunkKind::kStatements, 0, {}};
  if (statements.ends_with("<eof>")) return {ChunkKind::kIncomplete, 0, {}};
  // As an expression it may only lack its end, where as a statement it is wrong: "s +".
  if (parse(state.get(), "return " + std::string(text)).ends_with("<eof>")) return {ChunkKind::kIncomplete, 0, {}};
  return wrong(statements);
}

}  // namespace sluice::repl
