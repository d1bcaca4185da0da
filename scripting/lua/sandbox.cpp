#include "scripting/lua/sandbox.h"

#include <cstdlib>
#include <lua.hpp>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {

namespace {

// Few enough that the costliest instruction (concatenating or comparing texts of many megabytes) cannot outrun the clock.
constexpr int kInstructionsBetweenLooks = 50;
// Allocations from this size on look at the clock: they come with copies that take time.
constexpr size_t kLargeAllocation = size_t{64} << 10;

constexpr const char* kOutOfMemory = "the script uses too much memory";
constexpr const char* kOutOfTime = "the script runs too long";
constexpr const char* kOutOfInstructions = "the script runs too many instructions";

}  // namespace

Sandbox::Sandbox(Limits limits) : limits_(std::move(limits)) {
  deadline_ = std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(limits_.seconds));
  state_ = lua_newstate(allocate, this);
  if (!state_) throw InternalError("cannot create a Lua state");
  lua_sethook(state_, count, LUA_MASKCOUNT, kInstructionsBetweenLooks);
}

// No finalizer of the script's can run here: it has no way to set a metatable.
Sandbox::~Sandbox() { lua_close(state_); }

Sandbox& Sandbox::of(lua_State* state) {
  void* self = nullptr;
  lua_getallocf(state, &self);
  return *static_cast<Sandbox*>(self);
}

void Sandbox::stop(const char* reason) {
  if (stopped_by_) return;
  stopped_by_ = reason;
  if (limits_.on_stop) limits_.on_stop();
}

bool Sandbox::is_out_of_time() {
  if (!stopped_by_ && std::chrono::steady_clock::now() > deadline_) stop(kOutOfTime);
  return stopped_by_ != nullptr;
}

void* Sandbox::allocate(void* self, void* block, size_t old_bytes, size_t new_bytes) {
  auto& sandbox = *static_cast<Sandbox*>(self);
  if (!block) old_bytes = 0;  // Lua passes a type tag here
  if (new_bytes == 0) {
    std::free(block);
    sandbox.bytes_ -= old_bytes;
    return nullptr;
  }
  if (new_bytes > old_bytes) {
    if (new_bytes > kLargeAllocation) sandbox.is_out_of_time();
    if (sandbox.bytes_ + (new_bytes - old_bytes) > sandbox.limits_.memory) sandbox.stop(kOutOfMemory);
    if (sandbox.stopped_by_) return nullptr;
  }
  void* moved = std::realloc(block, new_bytes);
  // Lua relies on shrinking never failing.
  if (!moved) return new_bytes <= old_bytes ? block : nullptr;
  sandbox.bytes_ += new_bytes;
  sandbox.bytes_ -= old_bytes;
  return moved;
}

void Sandbox::count(lua_State* state, lua_Debug* event) {
  Sandbox& sandbox = of(state);
  sandbox.instructions_ += kInstructionsBetweenLooks;
  if (lua_getinfo(state, "l", event) != 0 && event->currentline > 0) sandbox.last_line_ = event->currentline;
  if (sandbox.instructions_ > sandbox.limits_.instructions) sandbox.stop(kOutOfInstructions);
  if (!sandbox.is_out_of_time()) return;
  // Pushing a text would allocate, which fails by now.
  lua_pushlightuserdata(state, &sandbox);
  lua_error(state);
}

}  // namespace sluice
