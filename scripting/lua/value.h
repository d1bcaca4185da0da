#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scripting/graph/graph.h"

namespace sluice {

/// What a script can hold of ours; it lies in Lua userdata as plain bytes.
struct Handle {
  enum class Kind : uint8_t {
    kTensor,       // id: node
    kSelection,    // id: node
    kJoined,       // id: index in GraphBuilder's list of selections that have tokens of a pattern beside them
    kState,        // id: index in FlowGraph::states
    kMass,         // `mass` of flow.after
    kDeclaration,  // id: index in GraphBuilder's list of cfill declarations
    kFlow,         // id: 0, or 1 + the place of a variant (Session::variants)
    kCache,        // `c` of the stages
    kModule,       // `sluice`
    kPatterns,     // `sluice.pattern`
    kPattern,      // id: index in GraphBuilder's list of patterns
  };
  Kind kind = Kind::kTensor;
  Stage stage = Stage::kCache;
  int32_t id = kNoNode;
  int32_t program = 0;  // that made it (Session::program)
};

struct DatumEntry;

/// A Lua value copied out of the interpreter, so that code with destructors never meets Lua's longjmp.
struct Datum {
  enum class Kind : uint8_t { kNil, kBoolean, kNumber, kText, kTable, kHandle, kOther };
  Kind kind = Kind::kNil;
  bool boolean = false;
  double number = 0;
  std::string text;  // kText; for kOther the name of the type
  Handle handle;
  std::vector<DatumEntry> entries;  // kTable, sorted: numbers first, then texts
};

struct DatumEntry {
  Datum key;
  Datum value;
};

/// What a function gives back to Lua: plain data.
struct Value {
  enum class Kind : uint8_t { kNothing, kHandle, kInteger, kNumber, kBoolean, kText };
  Kind kind = Kind::kNothing;
  Handle handle;
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::string_view text = {};  // of what outlives the call
};

/// For diagnostics: "the number 3", "a tensor [page B]", "nothing". Shapes come from `graph`.
std::string describe(const Datum& datum, const FlowGraph& graph);

}  // namespace sluice
