#include "host/text/jinja/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/operations.h"

namespace sluice::jinja {
namespace {

Value range(Run& run, const Arguments& arguments) {
  constexpr size_t kMost = 100'000;  // as Jinja's sandbox has it
  const Given given(run, "range", arguments, {"start", "stop", "step"}, 1);
  const bool has_start = given.has(1);
  const int64_t start = has_start ? given.integer(0, 0) : 0;
  const int64_t stop = given.integer(has_start ? 1 : 0, 0);
  const int64_t step = given.integer(2, 1);
  if (step == 0) run.fail("range: the step is 0");
  std::vector<Value> numbers;
  for (int64_t number = start; step > 0 ? number < stop : number > stop;) {
    if (numbers.size() == kMost) run.fail(fmt::format("range is longer than {}", kMost));
    numbers.emplace_back(number);
    if (__builtin_add_overflow(number, step, &number)) break;
  }
  return run.keep(std::move(numbers));
}

Value dict(Run& run, const Arguments& arguments) {
  Dict made;
  if (arguments.values.size() > 1) run.fail("dict takes one argument without a name");
  if (!arguments.values.empty()) {
    const Value& from = arguments.values.front();
    if (const Dict* other = as_dict(from)) {
      run.charge(other->items.size() * sizeof(other->items.front()));
      made.items = other->items;
    } else {
      for (const Value& pair : iterate(run, from)) {
        const std::span<const Value> parts = iterate(run, pair);
        if (parts.size() != 2) run.fail("dict wants pairs");
        set_item(run, made, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set_item(run, made, name, value);
  return run.keep(std::move(made.items));
}

Value make_namespace(Run& run, const Arguments& arguments) {
  auto& made = run.make<Namespace>();
  const Value members = dict(run, arguments);
  for (const auto& [name, value] : as_dict(members)->items) {
    if (as_text(name) != nullptr) made.set(run, *as_text(name), value);
  }
  return &made;
}

Value raise_exception(Run& run, const Arguments& arguments) {
  const Given given(run, "raise_exception", arguments, {"message"}, 1);
  constexpr size_t kMost = 2000;
  run.fail(std::string(text_of(run, given.at(0)).substr(0, kMost)));
}

Value strftime_now(Run& run, const Arguments& arguments) {
  const Given given(run, "strftime_now", arguments, {"format"}, 1);
  const std::string format(given.text(0));
  if (format.empty()) return std::string_view();
  const std::time_t now = run.now.value_or(std::time(nullptr));
  std::tm local{};
  run.now ? gmtime_r(&now, &local) : localtime_r(&now, &local);
  std::array<char, 256> text{};
  const size_t length = std::strftime(text.data(), text.size(), format.c_str(), &local);
  if (length == 0) run.fail("strftime_now: the format is empty, or too long");
  return run.keep(std::string(text.data(), length));
}

/// `cycler("a", "b")`: next() gives one after the other.
class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> values) : values_(std::move(values)) {}
  std::string_view type() const override { return "cycler"; }
  Value attribute(Run& run, std::string_view name) override;
  Value next() { return values_[std::exchange(at_, (at_ + 1) % values_.size())]; }
  Value reset() {
    at_ = 0;
    return None{};
  }

 private:
  std::vector<Value> values_;
  size_t at_ = 0;
};

/// A method of a cycler.
class CyclerMethod final : public Object {
 public:
  CyclerMethod(Cycler& cycler, Value (Cycler::*method)()) : cycler_(cycler), method_(method) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Run&, const Arguments&) override { return (cycler_.*method_)(); }

 private:
  Cycler& cycler_;
  Value (Cycler::*method_)();
};

Value Cycler::attribute(Run& run, std::string_view name) {
  if (name == "next") return &run.make<CyclerMethod>(*this, &Cycler::next);
  if (name == "reset") return &run.make<CyclerMethod>(*this, &Cycler::reset);
  return name == "current" ? values_[at_] : Value(Undefined{name});
}

Value cycler(Run& run, const Arguments& arguments) {
  if (arguments.values.empty()) run.fail("cycler has nothing to go through");
  return &run.make<Cycler>(arguments.values);
}

/// `joiner(", ")`: nothing when it is called first, and then the separator.
class Joiner final : public Object {
 public:
  explicit Joiner(const Value& separator) : separator_(separator) {}
  std::string_view type() const override { return "joiner"; }
  bool is_callable() const override { return true; }
  Value call(Run&, const Arguments&) override {
    return std::exchange(was_called_, true) ? separator_ : Value(std::string_view());
  }

 private:
  const Value separator_;
  bool was_called_ = false;
};

Value joiner(Run& run, const Arguments& arguments) {
  const Given given(run, "joiner", arguments, {"sep"});
  return &run.make<Joiner>(given.find(0) == nullptr ? Value(std::string_view(", ")) : given.at(0));
}

struct NamedFunction {
  std::string_view name;
  Function::Body body;
};

constexpr NamedFunction kFunctions[] = {{"range", range},
                                        {"dict", dict},
                                        {"namespace", make_namespace},
                                        {"raise_exception", raise_exception},
                                        {"strftime_now", strftime_now},
                                        {"cycler", cycler},
                                        {"joiner", joiner}};

}  // namespace

Value global(Run& run, std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const auto& function) { return function.name == name; });
  if (found == std::end(kFunctions)) return Undefined{name};
  return &run.make<Function>(found->body);
}

void set_item(Run& run, Dict& dict, const Value& key, const Value& value) {
  const Value* known = find(run, dict, key);
  if (known != nullptr) {
    dict.items[static_cast<size_t>(
                   std::find_if(dict.items.begin(), dict.items.end(), [&](const auto& item) { return &item.second == known; }) -
                   dict.items.begin())]
        .second = value;
    return;
  }
  run.charge(sizeof(dict.items.front()));
  dict.items.emplace_back(key, value);
}

}  // namespace sluice::jinja
