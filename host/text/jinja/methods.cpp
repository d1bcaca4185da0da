#include "host/text/jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/text/jinja/arguments.h"
#include "host/text/jinja/operations.h"
#include "host/text/jinja/text_methods.h"

namespace sluice::jinja {
namespace {

class Method final : public Object {
 public:
  Method(const Value& owner, MethodBody body) : owner_(owner), body_(body) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, const Arguments& arguments) override { return body_(run, owner_, arguments); }

 private:
  const Value owner_;
  const MethodBody body_;
};

Value items_of(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : as_dict(owner)->items) items.push_back(run.keep({key, value}, List::Kind::kTuple));
  return run.keep(std::move(items), List::Kind::kView);
}

Value keys_of(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "keys", arguments, {});
  std::vector<Value> keys;
  for (const auto& [key, value] : as_dict(owner)->items) keys.push_back(key);
  return run.keep(std::move(keys), List::Kind::kView);
}

Value values_of(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : as_dict(owner)->items) values.push_back(value);
  return run.keep(std::move(values), List::Kind::kView);
}

Value get(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "get", arguments, {"key", "default"}, 1);
  const Value* found = find(run, *as_dict(owner), given.at(0));
  if (found != nullptr) return *found;
  return given.find(1) == nullptr ? Value(None{}) : given.at(1);
}

Value itself(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "copy", arguments, {});
  return owner;
}

Value index(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "index", arguments, {"value"}, 1);
  const std::vector<Value>& items = as_list(owner)->items;
  const auto found = std::find_if(items.begin(), items.end(), [&](const Value& item) { return equal(run, item, given.at(0)); });
  if (found == items.end()) run.fail("index: the value is not in the list");
  return found - items.begin();
}

Value count(Run& run, const Value& owner, const Arguments& arguments) {
  const Given given(run, "count", arguments, {"value"}, 1);
  const std::vector<Value>& items = as_list(owner)->items;
  return std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(run, item, given.at(0)); });
}

Value refuse_to_change(Run& run, const Value& owner, const Arguments&) {
  run.fail(fmt::format("a {} cannot be changed; make a new one with `set`", type_of(owner)));
}

struct NamedMethod {
  std::string_view name;
  MethodBody body;
};

constexpr std::array<NamedMethod, 9> kOfDicts = {{{"items", items_of},
                                                  {"keys", keys_of},
                                                  {"values", values_of},
                                                  {"get", get},
                                                  {"copy", itself},
                                                  {"update", refuse_to_change},
                                                  {"pop", refuse_to_change},
                                                  {"setdefault", refuse_to_change},
                                                  {"clear", refuse_to_change}}};

constexpr std::array<NamedMethod, 11> kOfLists = {{{"index", index},
                                                   {"count", count},
                                                   {"copy", itself},
                                                   {"append", refuse_to_change},
                                                   {"extend", refuse_to_change},
                                                   {"insert", refuse_to_change},
                                                   {"pop", refuse_to_change},
                                                   {"remove", refuse_to_change},
                                                   {"reverse", refuse_to_change},
                                                   {"sort", refuse_to_change},
                                                   {"clear", refuse_to_change}}};

template <size_t n>
MethodBody find_in(const std::array<NamedMethod, n>& methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(), [&](const NamedMethod& method) { return method.name == name; });
  return found == methods.end() ? nullptr : found->body;
}

}  // namespace

std::optional<Value> find_method(Run& run, const Value& value, std::string_view name) {
  MethodBody body = nullptr;
  if (as_text(value) != nullptr) {
    body = find_text_method(name);
  } else if (as_dict(value) != nullptr) {
    body = find_in(kOfDicts, name);
  } else if (const List* list = as_list(value)) {
    const size_t most = list->kind == List::Kind::kList ? kOfLists.size() : list->kind == List::Kind::kTuple ? 2 : 0;
    body = find_in(kOfLists, name);
    if (most < kOfLists.size() && std::none_of(kOfLists.begin(), kOfLists.begin() + static_cast<std::ptrdiff_t>(most),
                                               [&](const NamedMethod& method) { return method.name == name; })) {
      body = nullptr;
    }
  }
  if (body == nullptr) return std::nullopt;
  return &run.make<Method>(value, body);
}

}  // namespace sluice::jinja
