#include "host/text/jinja/value.h"

#include "host/text/jinja/object.h"

namespace sluice::jinja {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::string_view type_of_list(const List& list) {
  switch (list.kind) {
    case List::Kind::kList:
      return "list";
    case List::Kind::kTuple:
      return "tuple";
    case List::Kind::kView:
      return "view of a dict";
    case List::Kind::kGenerator:
      return "generator";
  }
  return "list";
}

}  // namespace

std::string_view type_of(const Value& value) {
  return std::visit(
      Overloaded{[](Undefined) -> std::string_view { return "undefined"; }, [](None) -> std::string_view { return "None"; },
                 [](bool) -> std::string_view { return "bool"; }, [](int64_t) -> std::string_view { return "int"; },
                 [](double) -> std::string_view { return "float"; }, [](std::string_view) -> std::string_view { return "str"; },
                 [](const List* list) { return type_of_list(*list); }, [](const Dict*) -> std::string_view { return "dict"; },
                 [](const Object* object) { return object->type(); }},
      value);
}

bool truth(const Value& value) {
  return std::visit(Overloaded{[](Undefined) { return false; }, [](None) { return false; }, [](bool truth) { return truth; },
                               [](int64_t number) { return number != 0; }, [](double number) { return number != 0; },
                               [](std::string_view text) { return !text.empty(); },
                               [](const List* list) { return list->kind == List::Kind::kGenerator || !list->items.empty(); },
                               [](const Dict* dict) { return !dict->items.empty(); }, [](const Object*) { return true; }},
                    value);
}

}  // namespace sluice::jinja
