// The input is what a hijacked child might answer: a graph, or a graph of ours with changes, or a whole answer; its first byte
// says which. Whatever is read as a graph has these bytes as its only encoding, and one that `verify` accepts compiles.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sandbox/wire/graph_wire.h"
#include "sandbox/wire/messages.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/verify.h"

namespace {

constexpr const char* kFlow = R"(
local flow = sluice.flow{name = "fuzz", layers = {[0] = "full", [-1] = "full", rest = "sparse"}}
function flow.cache(c)
  c.high = c.k:max("token")
  c.low = c.k:min_interleave("token", 4)
end
function flow.index(q, c)
  local seen = sluice.load("seen", {axes = {"page"}, init = 1})
  local s = q:dot(c.high):max("head"):conv1d({0.25, 0.5, 0.25}, "page") + q:dot(c.low):max("sub"):mean("head")
  sluice.save("seen", seen * 0.5 + s:softmax("page"))
  return sluice.union(sluice.topk(s + seen, {k = 4, ratio = 0.5}), sluice.threshold(s, {above = s:mean("page"), last = 1}))
end
return flow
)";

/// Three bytes a change: a place, twice, and what to write there.
std::string changed_graph(std::string_view changes) {
  static const std::string graph = sluice::encode_graph(sluice::trace(kFlow, "fuzz.lua"));
  std::string bytes = graph;
  for (; changes.size() >= 3; changes.remove_prefix(3)) {
    const size_t place = static_cast<uint8_t>(changes[0]) * 256U + static_cast<uint8_t>(changes[1]);
    bytes[place % bytes.size()] = changes[2];
  }
  return bytes;
}

void read_graph(std::string_view bytes) {
  const sluice::FlowGraph graph = sluice::decode_graph(bytes, "fuzz.lua");
  if (sluice::encode_graph(graph) != bytes) __builtin_trap();
  sluice::verify(graph);
  sluice::compile(graph);
}

void read_messages(std::string_view bytes) {
  sluice::take_greeting(bytes);
  sluice::decode_answer(bytes, "fuzz.lua");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 3) {
      case 0:
        read_messages(bytes);
        break;
      case 1:
        read_graph(bytes);
        break;
      default:
        read_graph(changed_graph(bytes));
    }
  } catch (const sluice::InputError&) {
    // The only way in which bad input may end.
  }
  return 0;
}
