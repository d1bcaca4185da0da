#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::repl {

/// What Lua's parser makes of a text.
enum class ChunkKind : uint8_t {
  kEmpty,       // white space and comments
  kExpression,  // "q:max('dim')": it has a value
  kStatements,  // "s = ..."
  kIncomplete,  // more lines are wanted
  kWrong,
};

struct Chunk {
  ChunkKind kind = ChunkKind::kEmpty;
  int line = 0;         // kWrong: 1-based
  std::string message;  // kWrong: what Lua says
};

/// Parses `text` as Lua's own interactive mode does: as an expression, else as statements, which are incomplete where Lua would
/// go on reading at the end. Nothing of it runs.
Chunk classify(std::string_view text);

}  // namespace sluice::repl
