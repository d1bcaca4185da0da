#include "scripting/lua/reader.h"

#include <algorithm>
#include <cmath>
#include <lua.hpp>

#include "scripting/base/error.h"

namespace sluice {

namespace {

constexpr int kDeepestTable = 4;
constexpr size_t kLargestTable = 4096;  // entries, all levels together
constexpr size_t kLongestText = 4096;
constexpr int kMostArguments = 250;

bool comes_before(const Datum& a, const Datum& b) {
  if (a.kind != b.kind) return a.kind < b.kind;
  return a.kind == Datum::Kind::kNumber ? a.number < b.number : a.text < b.text;
}

class DatumReader {
 public:
  explicit DatumReader(lua_State* state) : state_(state) {}

  Datum read(int index, int depth) {
    Datum datum;
    const int type = lua_type(state_, index);
    switch (type) {
      case LUA_TNONE:
      case LUA_TNIL:
        break;
      case LUA_TBOOLEAN:
        datum.kind = Datum::Kind::kBoolean;
        datum.boolean = lua_toboolean(state_, index) != 0;
        break;
      case LUA_TNUMBER:
        datum.kind = Datum::Kind::kNumber;
        datum.number = lua_tonumber(state_, index);
        if (std::isnan(datum.number)) datum.number = std::fabs(datum.number);  // messages do not tell its sign
        break;
      case LUA_TSTRING: {
        size_t length = 0;
        const char* text = lua_tolstring(state_, index, &length);
        if (length > kLongestText) throw InputError("a text is longer than 4096 bytes");
        datum.kind = Datum::Kind::kText;
        datum.text.assign(text, length);
        break;
      }
      case LUA_TTABLE:
        datum.kind = Datum::Kind::kTable;
        read_table(index, depth, datum);
        break;
      case LUA_TUSERDATA:
        datum.kind = Datum::Kind::kHandle;
        // Every full userdata in the state is ours.
        datum.handle = *static_cast<const Handle*>(lua_touserdata(state_, index));
        break;
      default:
        datum.kind = Datum::Kind::kOther;
        datum.text = lua_typename(state_, type);
    }
    return datum;
  }

 private:
  void read_table(int index, int depth, Datum& datum) {
    if (depth >= kDeepestTable) throw InputError("a table is nested too deeply");
    if (lua_checkstack(state_, 4) == 0) throw InputError("too many values");
    for (lua_pushnil(state_); lua_next(state_, index) != 0; lua_pop(state_, 1)) {
      if (++entries_ > kLargestTable) throw InputError("a table has more than 4096 entries");
      const int value = lua_gettop(state_);
      Datum key = read(value - 1, kDeepestTable);
      datum.entries.push_back({std::move(key), read(value, depth + 1)});
    }
    // Lua's order differs from run to run.
    std::sort(datum.entries.begin(), datum.entries.end(),
              [](const auto& a, const auto& b) { return comes_before(a.key, b.key); });
  }

  lua_State* state_;
  size_t entries_ = 0;
};

}  // namespace

Datum read_datum(lua_State* state, int index) { return DatumReader(state).read(lua_absindex(state, index), 0); }

std::vector<Datum> read_arguments(lua_State* state) {
  const int count = lua_gettop(state);
  if (count > kMostArguments) throw InputError("more than 250 arguments");
  DatumReader reader(state);
  std::vector<Datum> values;
  for (int i = 1; i <= count; ++i) values.push_back(reader.read(i, 0));
  return values;
}

}  // namespace sluice
