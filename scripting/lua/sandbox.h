#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

struct lua_State;
struct lua_Debug;

namespace sluice {

/// A Lua 5.4 state that can be stopped: memory is capped, instructions and wall-clock time are counted. Once stopped it
/// stays stopped: every further allocation and instruction fails. It holds no library; see library.h.
class Sandbox {
 public:
  struct Limits {
    double seconds = 1;
    size_t memory = size_t{64} << 20;    // bytes
    int64_t instructions = 50'000'000;   // of the Lua machine
    std::function<void()> on_stop = {};  // called once, when the state is stopped; must not throw
  };

  explicit Sandbox(Limits limits);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  lua_State* state() const { return state_; }
  /// Why the script was stopped, or null. A static text.
  const char* stopped_by() const { return stopped_by_; }
  /// The line that ran when last looked at, or 0.
  int last_line() const { return last_line_; }

  /// True once the script is out of time; for library functions that may run long within one instruction.
  bool is_out_of_time();
  static Sandbox& of(lua_State* state);

 private:
  static void* allocate(void* self, void* block, size_t old_bytes, size_t new_bytes);
  void stop(const char* reason);
  static void count(lua_State* state, lua_Debug* event);

  Limits limits_;
  std::chrono::steady_clock::time_point deadline_;
  size_t bytes_ = 0;
  int64_t instructions_ = 0;
  const char* stopped_by_ = nullptr;
  int last_line_ = 0;
  lua_State* state_ = nullptr;
};

}  // namespace sluice
