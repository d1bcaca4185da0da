#include <gtest/gtest.h>

#include "scripting/graph/text.h"
#include "scripting/lua/functions.h"
#include "scripting/lua/trace.h"
#include "scripting/repl/chunk.h"
#include "scripting/repl/completion.h"
#include "scripting/repl/draft.h"
#include "scripting/repl/reference.h"
#include "scripting/repl/subgraph.h"
#include "scripting/repl/tokens.h"
#include "tests/support/golden.h"

namespace sluice::repl {
namespace {

using testing::read_text;
using testing::source_path;

std::vector<std::string> words(const std::string& source) {
  std::vector<std::string> texts;
  for (const Token& token : tokens_of(source)) texts.emplace_back(token.text);
  return texts;
}

TEST(Tokens, LeaveOutCommentsAndKeepTextsWhole) {
  EXPECT_EQ(words("a=b --[[ c\nd ]]e -- f\n[==[g]]h]==] 'i\\'j' 1.5e-3 ~="),
            (std::vector<std::string>{"a", "=", "b", "e", "[==[g]]h]==]", "'i\\'j'", "1.5e-3", "~="}));
}

TEST(Tokens, CountTheBlocksAroundThem) {
  for (const Token& token : tokens_of("out(1) while x do y() end repeat y = {y} until out function f() y() end return out")) {
    if (token.is("out")) {
      EXPECT_EQ(token.depth, 0);
    } else if (token.is("y")) {
      EXPECT_GE(token.depth, 1);
    }
  }
}

TEST(Tokens, TakeAnyText) {
  for (const std::string text : {"'", "\"\\", "[[", "--[[", "[==", "end end )", "\xff\x01", "1e", "..."}) {
    for (const Token& token : tokens_of(text)) EXPECT_LE(token.end(), text.size()) << text;
  }
}

TEST(Chunk, IsClassifiedAsLuaWould) {
  const std::pair<std::string, ChunkKind> cases[] = {
      {"", ChunkKind::kEmpty},
      {" -- only a comment", ChunkKind::kEmpty},
      {"q:max('dim')", ChunkKind::kExpression},
      {"q * 2", ChunkKind::kExpression},
      {"s = q", ChunkKind::kStatements},
      {"local s", ChunkKind::kStatements},
      {"return q", ChunkKind::kStatements},
      {"function f(x)", ChunkKind::kIncomplete},
      {"function f(x)\n  return x\nend", ChunkKind::kStatements},
      {"q:max(", ChunkKind::kIncomplete},
      {"q +", ChunkKind::kIncomplete},
      {"s =", ChunkKind::kIncomplete},
      {"[[text", ChunkKind::kIncomplete},
      {")", ChunkKind::kWrong},
      {"s = = q", ChunkKind::kWrong},
      {"'text\n", ChunkKind::kWrong},
  };
  for (const auto& [text, kind] : cases) EXPECT_EQ(classify(text).kind, kind) << text;
}

TEST(Chunk, SaysWhereItIsWrong) {
  const Chunk chunk = classify("s = q\nt = = q");
  EXPECT_EQ(chunk.line, 2);
  EXPECT_EQ(chunk.message, "unexpected symbol near '='");
}

void type(Draft& draft, const std::string& text, int input = 1) { draft.add({text, {"input " + std::to_string(input), 1}}); }

TEST(Draft, PutsEveryLineWhereItBelongs) {
  Draft draft;
  type(draft, "c.hi = c.k:max('token')");
  type(draft, "function best(x)\n  return x:max('head')\nend");
  type(draft, "local s = best(q:dot(c.hi))");
  type(draft, "return sluice.topk(s, {k = 3})");
  EXPECT_EQ(draft.script().text,
            "local flow = sluice.flow { name = \"repl\", page = 16 }\n"
            "function best(x)\n  return x:max('head')\nend\n"
            "\nfunction flow.cache(c)\n  c.hi = c.k:max('token')\nend\n"
            "\nfunction flow.index(q, c)\n  local s = best(q:dot(c.hi))\n  return sluice.topk(s, {k = 3})\nend\n"
            "\nreturn flow\n");
  EXPECT_NE(trace(draft.script().text, "draft").selection(), kNoNode);
}

TEST(Draft, KnowsWhereItsLinesComeFrom) {
  Draft draft;
  type(draft, "c.hi = c.k:max('token')", 1);
  type(draft, "s = q\nt = q:max('bad')", 2);
  try {
    inspect(draft.script().text, "draft");
    FAIL();
  } catch (const FlowError& error) {
    const Script script = draft.script();
    EXPECT_EQ(script.origins.at(static_cast<size_t>(error.where().line) - 1), (SourceLocation{"input 2", 2}));
  }
}

TEST(Draft, AnAssignmentToAFieldTakesThePlaceOfTheOneBefore) {
  Draft draft;
  type(draft, "c.a = c.k:max('token')");
  type(draft, "c.b = c.k:min('token')");
  type(draft, "c.a = c.k:mean('token')");
  const std::string script = draft.script().text;
  EXPECT_EQ(script.find("c.k:max"), std::string::npos);
  EXPECT_LT(script.find("c.a = c.k:mean"), script.find("c.b"));
  EXPECT_EQ(draft.members(), (std::vector<std::string>{"a", "b", "k", "v"}));
}

TEST(Draft, WholeStagesReplaceTheLinesBefore) {
  Draft draft;
  type(draft, "c.old = c.k:max('token')");
  type(draft, "s = q");
  type(draft, "function flow.cache(cache)\n  -- fields\n  cache.new = cache.k:min('token')\nend");
  type(draft,
       "flow.index = function(query, cache)\n  t = query:dot(cache.new):max('head')\n  return sluice.topk(t, {k = 1})\nend");
  const std::string script = draft.script().text;
  EXPECT_EQ(script.find("old"), std::string::npos);
  EXPECT_EQ(script.find("s = q"), std::string::npos);
  type(draft, "cache.more = cache.new * 2");
  EXPECT_EQ(inspect(draft.script_returning({"cache.more + t", {}}).text, "draft").kind, Inspection::Kind::kTensor);
  EXPECT_EQ(draft.names(), (std::vector<std::string>{"cache", "mass", "query", "t"}));
}

TEST(Draft, TakesFlowsApartAndKeepsTheirMeaning) {
  for (const char* name : {"block_topk", "double_sparse", "full", "h2o", "nsa_topk", "quest", "random", "streaming"}) {
    const std::string source = read_text(source_path(std::string("scripting/flows/") + name + ".lua"));
    Draft draft;
    EXPECT_TRUE(draft.add({source, {"flow.lua", 1}}));
    EXPECT_EQ(to_text(trace(draft.script().text, "draft")), to_text(trace(source, "flow.lua"))) << name;
    const std::string script = draft.script().text;
    Draft again;
    again.add({script, {"flow.lua", 1}});
    EXPECT_EQ(again.script().text, script) << name;
  }
}

TEST(Draft, CommentsMayStandAnywhere) {
  const std::string source =
      "-- before\nlocal flow = sluice.flow { name = 'said', page = 8 } -- a\n"
      "function flow.index(q, c) -- b\n  return sluice.window{last = 2} -- c\nend --[[ d\n]]\nreturn --[[ e ]] flow -- f\n-- g\n";
  Draft draft;
  EXPECT_TRUE(draft.add({source, {"flow.lua", 1}}));
  EXPECT_EQ(to_text(trace(draft.script().text, "draft")), to_text(trace(source, "flow.lua")));
}

TEST(Draft, FlowsMayBeTypedStatementByStatement) {
  Draft draft;
  type(draft, "old = 1");
  type(draft, "local mine = sluice.flow { name = 'mine', page = 8 }");
  type(draft, "function mine.index(q, c)\n  return sluice.window{last = 2}\nend");
  type(draft, "return mine");
  EXPECT_EQ(trace(draft.script().text, "draft").name, "mine");
  EXPECT_EQ(draft.script().text.find("old"), std::string::npos);
}

TEST(Draft, RefusesFilesThatEndInSomethingElse) {
  Draft draft;
  EXPECT_THROW(type(draft, "local flow = sluice.flow { name = 'x' }\nreturn make(flow)"), FlowError);
}

TEST(Draft, WritesThePageIntoTheDeclaration) {
  for (const std::string declaration :
       {"local flow = sluice.flow { name = 'x', page = 32 }", "local flow = sluice.flow({name = 'x'})",
        "local flow = sluice.flow { name = 'x', layers = { [0] = 'full', rest = 'sparse' }, page = 8 * 2 }",
        "local flow = sluice.flow { page = (function() return 8 end)(); name = 'x' }"}) {
    Draft draft;
    type(draft, declaration);
    draft.set_page(64);
    EXPECT_EQ(inspect(draft.script().text, "draft").graph.geometry.page, 64) << draft.script().text;
  }
  Draft draft;
  type(draft, "local options = {name = 'x'}\nlocal flow = sluice.flow(options)\n");
  EXPECT_THROW(draft.set_page(64), InputError);
}

TEST(Inspection, TellsWhatIsReturned) {
  const auto kind_of = [](const std::string& expression) {
    return inspect(Draft().script_returning({expression, {}}).text, "draft").kind;
  };
  EXPECT_EQ(kind_of("q"), Inspection::Kind::kTensor);
  EXPECT_EQ(kind_of("sluice.load('s', {axes = {'page'}})"), Inspection::Kind::kTensor);
  EXPECT_EQ(kind_of("sluice.window{last = 1}"), Inspection::Kind::kSelection);
  EXPECT_EQ(kind_of("1 + 1"), Inspection::Kind::kNumber);
  EXPECT_EQ(kind_of("'text'"), Inspection::Kind::kText);
  EXPECT_EQ(kind_of("nil"), Inspection::Kind::kNothing);
  EXPECT_EQ(kind_of("{}"), Inspection::Kind::kOther);
}

TEST(Subgraph, HoldsWhatANodeNeedsAndNothingElse) {
  Draft draft;
  type(draft, "c.a = c.k:max('token')");
  type(draft, "c.b = c.k:min('token')");
  type(draft, "unused = q:dot(c.a)");
  const Inspection seen = inspect(draft.script_returning({"q:dot(c.b)", {}}).text, "draft");
  EXPECT_EQ(to_text(subgraph(seen.graph, seen.node)),
            "flow \"repl\" page 16 kv bf16 dim 64 group 4 layers {rest: sparse}\n"
            "cache\n"
            "  %0 = key                             [token 16, dim 64]\n"
            "  %1 = min %0 over token               [dim 64]\n"
            "  field b bf16 = %1\n"
            "index\n"
            "  %2 = query                           [head 4, dim 64]\n"
            "  %3 = field b                         [page B, dim 64]\n"
            "  %4 = contract %2 %3 over dim         [page B, head 4]\n");
}

std::vector<std::string> candidates(const std::string& line) {
  const Vocabulary vocabulary{{":head", ":help", ":step"}, {"score", "step"}, {"hi", "k", "v"}};
  return complete(line, vocabulary).candidates;
}

TEST(Completion, KnowsWhatMayStandWhere) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(candidates(":he"), (Words{":head", ":help"}));
  EXPECT_EQ(candidates(" :s"), (Words{":step"}));
  EXPECT_EQ(candidates("q:so"), (Words{"softmax"}));
  EXPECT_EQ(candidates("q:flow"), (Words{}));  // no method
  EXPECT_EQ(candidates("x = sluice.top"), (Words{"topk", "topk_tokens", "topp"}));
  EXPECT_EQ(candidates("sluice.pag"), (Words{"page_size"}));
  EXPECT_EQ(candidates("q:dot(c."), (Words{"hi", "k", "v"}));
  EXPECT_EQ(candidates("q:max(\"to"), (Words{"token"}));
  EXPECT_EQ(candidates("q:max('"), (Words{"dim", "head", "page", "sub", "token"}));
  EXPECT_EQ(candidates("q:max('token') + s"), (Words{"score", "sluice", "step"}));
  EXPECT_EQ(candidates("other.x"), (Words{}));
  EXPECT_EQ(complete("a + sc", {{}, {"score"}, {}}).begin, 4U);
}

TEST(Completion, SharesTheLongestBeginning) {
  EXPECT_EQ(common_prefix({"where_gt", "where_ge", "where_eq"}), "where_");
  EXPECT_EQ(common_prefix({"topk"}), "topk");
  EXPECT_EQ(common_prefix({}), "");
}

TEST(Reference, CoversEveryFunctionThatScriptsCanCall) {
  for (const std::string& name : function_names(false)) {
    const std::string help = operator_help(name);
    EXPECT_NE(help.find("sluice." + name), std::string::npos) << help;
    EXPECT_EQ(help.find("shape: \n"), std::string::npos) << help;
  }
  EXPECT_NE(operator_help("sum").find("stage: index and after\n"), std::string::npos);
  EXPECT_NE(operator_list().find(" where_ge"), std::string::npos);
  EXPECT_THROW(operator_help("nothing_like_it"), InputError);
}

TEST(Draft, KeepsTheAfterStage) {
  Draft draft;
  draft.add({"c.heavy = sluice.cfill(0)", {"input", 1}});
  draft.add({"return sluice.topk(c.heavy, {k = 3})", {"input", 2}});
  draft.add({"local by_page = mass:sum('token')", {"input", 3}});
  draft.add({"c.heavy:save(c.heavy + by_page:sum('head'))", {"input", 4}});
  const FlowGraph typed = trace(draft.script().text, "flow");
  EXPECT_TRUE(typed.reads_mass());
  EXPECT_TRUE(typed.saves_in(Stage::kAfter));
  EXPECT_FALSE(typed.saves_in(Stage::kIndex));
  const Script script = draft.script_returning({"by_page:max('head')", {}});
  const Inspection seen = inspect(script.text, "flow", {}, script.asked);
  EXPECT_EQ(seen.kind, Inspection::Kind::kTensor);
  EXPECT_EQ(seen.graph.nodes[static_cast<size_t>(seen.node)].stage, Stage::kAfter);
  ASSERT_EQ(seen.graph.sources.size(), 1U);
  // A flow that is read takes its place as a whole.
  Draft read;
  EXPECT_TRUE(read.add({read_text(source_path("scripting/flows/masses/heavy_hitters.lua")), {"heavy_hitters.lua", 1}}));
  EXPECT_NE(read.script().text.find(".after(q, c, mass)"), std::string::npos);
  EXPECT_TRUE(trace(read.script().text, "flow").saves_in(Stage::kAfter));
}

}  // namespace
}  // namespace sluice::repl
