#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"

// Any script gives a graph that compiles, or a FlowError. Half of the inputs are scripts as they are; in the others every
// byte is a word of the language, so that more of them get past Lua's parser.

namespace {

constexpr std::array<std::string_view, 112> kWords = {"q",
                                                      "c.k",
                                                      "c.v",
                                                      "c.a",
                                                      "c.b",
                                                      "c",
                                                      "sluice",
                                                      "x",
                                                      "y",
                                                      "local x = ",
                                                      "local y = ",
                                                      "x = ",
                                                      "c.a = ",
                                                      "c.b = ",
                                                      "\n",
                                                      " ",
                                                      "(",
                                                      ")",
                                                      "{",
                                                      "}",
                                                      ",",
                                                      "=",
                                                      ":",
                                                      ".",
                                                      "+",
                                                      "-",
                                                      "*",
                                                      "/",
                                                      "<",
                                                      "==",
                                                      "..",
                                                      "#",
                                                      "0",
                                                      "1",
                                                      "2",
                                                      "4",
                                                      "-1",
                                                      "0.5",
                                                      "1e9",
                                                      "1e300",
                                                      "math.huge",
                                                      "0/0",
                                                      "nil",
                                                      "true",
                                                      "\"page\"",
                                                      "\"token\"",
                                                      "\"dim\"",
                                                      "\"head\"",
                                                      "\"sub\"",
                                                      "\"x\"",
                                                      ":max(\"token\")",
                                                      ":mean(\"token\")",
                                                      ":sum(\"dim\")",
                                                      ":max(\"head\")",
                                                      ":min(\"sub\")",
                                                      ":l2norm(\"dim\")",
                                                      ":mean(\"page\")",
                                                      ":softmax(\"page\")",
                                                      ":normalize(\"head\")",
                                                      ":conv1d({1,2,1})",
                                                      ":conv1d({1},\"dim\")",
                                                      ":transpose()",
                                                      ":reshape({\"page\",{\"sub\",4},{\"dim\",16}})",
                                                      ":mask_slice(\"page\",1,-1,0)",
                                                      ":mean_interleave(\"token\",4)",
                                                      ":max_interleave(\"dim\",2)",
                                                      ":relu()",
                                                      ":sigmoid()",
                                                      ":exp()",
                                                      ":log()",
                                                      ":abs()",
                                                      ":sqrt()",
                                                      ":dot(c.k)",
                                                      ":dot(c.a)",
                                                      ":maximum(x)",
                                                      ":minimum(0)",
                                                      "sluice.kron(x,y,\"dim\")",
                                                      "sluice.where_gt(x,y,1,0)",
                                                      "sluice.where_ne(x,x,0,y)",
                                                      "sluice.add_mul(x,y,2)",
                                                      "sluice.fill(0,{\"page\"})",
                                                      "sluice.fill(1,{{\"sub\",4}})",
                                                      "sluice.cfill(0)",
                                                      "sluice.cfill(1,{\"dim\"})",
                                                      "sluice.position()",
                                                      "sluice.random()",
                                                      "sluice.load(\"s\",{axes={\"page\"}})",
                                                      "sluice.save(\"s\",x)",
                                                      "c.b:save(x)",
                                                      "c.b:load()",
                                                      "sluice.topk(x,{k=4})",
                                                      "sluice.topk(x,{ratio=1/8,last=1})",
                                                      "sluice.approx_topk(x,{k=2,tolerate=0.1})",
                                                      "sluice.threshold(x,{above=0})",
                                                      "sluice.window{last=4}",
                                                      "sluice.union(x,y)",
                                                      ":topk{k=1}",
                                                      ":extent(\"dim\")",
                                                      "return ",
                                                      "for i = 1, 9 do ",
                                                      "if x then ",
                                                      "while x do ",
                                                      "local function f() ",
                                                      " end ",
                                                      "f()",
                                                      "error(x)",
                                                      "tostring(x)",
                                                      "pairs(x)",
                                                      "string.rep(\"ab\",9)",
                                                      "table.concat({1,2})",
                                                      "select(2,x,y)",
                                                      "next(x)"};

std::string script_of_words(const uint8_t* data, size_t size) {
  // The first byte 255 ends the cache stage.
  std::string stages[2];
  size_t stage = 0;
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 255 && stage == 0) {
      stage = 1;
    } else {
      stages[stage] += kWords[data[i] % kWords.size()];
    }
  }
  return "local flow = sluice.flow{name = \"fuzz\"}\nfunction flow.cache(c)\nlocal x, y = c.k, c.v\n" + stages[0] +
         "\nend\nfunction flow.index(q, c)\nlocal x, y = sluice.position(), q\n" + stages[1] + "\nend\nreturn flow\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool is_text = data[0] % 2 == 0;
  const std::string source =
      is_text ? std::string(reinterpret_cast<const char*>(data + 1), size - 1) : script_of_words(data + 1, size - 1);
  sluice::TraceOptions options;
  options.instructions = 200'000;
  options.memory = size_t{8} << 20;
  try {
    const sluice::Plan plan = sluice::compile(sluice::trace(source, "fuzz.lua", options)).plan;
    if (sluice::to_text(plan).empty()) std::abort();
  } catch (const sluice::FlowError&) {
    return 0;  // refused, as it should be
  }
  return 0;
}
