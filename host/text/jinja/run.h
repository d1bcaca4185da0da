#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/text/jinja/object.h"
#include "host/text/jinja/value.h"

namespace sluice::jinja {

/// What is wrong with a template, or with what it was given. `JinjaTemplate` makes an InputError of it.
class Fault : public std::runtime_error {
 public:
  Fault(int line, const std::string& message) : std::runtime_error(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

/// Names of one block; a name that is not here is looked for in the parent.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
};

/// One rendering: it owns all that is made on the way, until it ends, and it counts. A step is about as much work as the
/// evaluation of a small expression (tens of nanoseconds); bytes are those of all values and of all that is written, and none is
/// given back. Both have a limit, so that every rendering ends soon and takes little memory.
class Run {
 public:
  static constexpr size_t kMostSteps = 8'000'000;
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr int kDeepest = 500;       // evaluations within each other
  static constexpr int kDeepestValue = 100;  // lists and dicts within each other

  /// The line of the template that is at work, for messages.
  int line = 0;
  /// What strftime_now tells, in UTC; the clock's local time without it.
  std::optional<std::time_t> now;

  [[noreturn]] void fail(const std::string& message) const { throw Fault(line, message); }

  void step(size_t steps = 1) {
    steps_ += steps;
    if (steps_ > kMostSteps) fail("the template takes too many steps; does it loop for ever?");
  }
  /// Text that is read or copied at once.
  void read(size_t bytes) { step(1 + bytes / 256); }
  /// Text that is looked at character by character.
  void walk(size_t bytes) { step(1 + bytes / 16); }
  /// Text whose characters are looked up in tables of Unicode.
  void look_up(size_t bytes) { step(1 + bytes / 4); }
  void charge(size_t bytes) {
    bytes_ += bytes;
    if (bytes > kMostBytes || bytes_ > kMostBytes) fail("the template makes too much text, or lists that are too long");
    read(bytes);
  }

  /// A text that is short or was charged for already.
  Value keep(std::string text);
  Value keep(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  Value keep(std::vector<std::pair<Value, Value>> items);
  Value from_json(const nlohmann::ordered_json& json);
  template <class Made, class... Parts>
  Made& make(Parts&&... parts) {
    charge(sizeof(Made) + 32);
    auto made = std::make_unique<Made>(std::forward<Parts>(parts)...);
    Made& result = *made;
    objects_.push_back(std::move(made));
    return result;
  }
  Scope& make_scope(Scope* parent);

  /// Counts how deep evaluation is.
  class Level {
   public:
    explicit Level(Run& run) : run_(run) {
      if (++run_.level_ <= kDeepest) return;
      --run_.level_;
      run_.fail("the template nests too deep");
    }
    ~Level() { --run_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Run& run_;
  };

 private:
  size_t steps_ = 0;
  size_t bytes_ = 0;
  int level_ = 0;
  std::deque<std::string> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Scope> scopes_;
  std::vector<std::unique_ptr<Object>> objects_;
};

/// A text in the making; what is added is charged first.
class Writer {
 public:
  explicit Writer(Run& run) : run_(run) {}
  void add(std::string_view text) {
    run_.charge(text.size());
    text_ += text;
  }
  void add(size_t times, char filler) {
    run_.charge(times);
    text_.append(times, filler);
  }
  Value done() { return run_.keep(std::move(text_)); }
  std::string take() { return std::move(text_); }
  Run& run() { return run_; }

 private:
  Run& run_;
  std::string text_;
};

}  // namespace sluice::jinja
