#include "scripting/lua/value.h"

#include <fmt/format.h>

namespace sluice {

namespace {

std::string describe_handle(const Handle& handle, const FlowGraph& graph) {
  switch (handle.kind) {
    case Handle::Kind::kTensor:
      return "a tensor " + to_string(graph.nodes[static_cast<size_t>(handle.id)].shape);
    case Handle::Kind::kSelection:
    case Handle::Kind::kJoined:
      return "a selection of pages";
    case Handle::Kind::kState:
      return "the state " + graph.states[static_cast<size_t>(handle.id)].name;
    case Handle::Kind::kMass:
      return "what attention gave";
    case Handle::Kind::kDeclaration:
      return "a cfill";
    case Handle::Kind::kFlow:
      return "the flow";
    case Handle::Kind::kCache:
      return "the cache object";
    case Handle::Kind::kModule:
      return "sluice itself";
    case Handle::Kind::kPatterns:
      return "sluice.pattern itself";
    case Handle::Kind::kPattern:
      return "a pattern";
  }
  return "something else";
}

}  // namespace

std::string describe(const Datum& datum, const FlowGraph& graph) {
  constexpr size_t kLongestQuote = 40;
  switch (datum.kind) {
    case Datum::Kind::kNil:
      return "nothing";
    case Datum::Kind::kBoolean:
      return datum.boolean ? "true" : "false";
    case Datum::Kind::kNumber:
      return fmt::format("the number {}", datum.number);
    case Datum::Kind::kText:
      return datum.text.size() <= kLongestQuote ? fmt::format("the text \"{}\"", datum.text) : "a long text";
    case Datum::Kind::kTable:
      return "a table";
    case Datum::Kind::kHandle:
      return describe_handle(datum.handle, graph);
    case Datum::Kind::kOther:
      return "a " + datum.text;
  }
  return "something else";
}

}  // namespace sluice
