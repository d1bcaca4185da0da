#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"

namespace sluice::test {
namespace {

int lines_with(const std::string& text, const std::string& part) {
  std::istringstream stream(text);
  int lines = 0;
  for (std::string line; std::getline(stream, line);) lines += line.find(part) != std::string::npos ? 1 : 0;
  return lines;
}

TEST(CheckAndPlan, TakeTheNamesOfShippedFlows) {
  for (const std::string command : {"check", "plan"}) {
    const Ran ran = run_sluice({command, "quest"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_NE(ran.out.find("quest"), std::string::npos);
  }
}

TEST(Check, SaysHowManyQueriesSeeNothing) {
  const std::string text = run_shell("\"$SLUICE\" check strided_block_local").out;
  EXPECT_EQ(lines_with(text, "of 8192 queries under"), 1) << text;
  EXPECT_EQ(lines_with(text, "see nothing, and give zeros"), 1) << text;
  EXPECT_EQ(lines_with(run_shell("\"$SLUICE\" check strided_block_local --json").out, "\"blind\": 6144"), 1);
  EXPECT_EQ(lines_with(run_shell("\"$SLUICE\" check sink_window").out, "nothing"), 0);
}

TEST(CheckAndPlan, TakeFlowsFromPipes) {
  const std::string quest = SLUICE_SOURCE_DIR "/scripting/flows/quest.lua";
  for (const std::string command : {"check", "plan"}) {
    for (const std::string& arguments : {" - < " + quest, " /dev/stdin < " + quest, " <(cat " + quest + ")"}) {
      const Ran ran = run_shell("\"$SLUICE\" " + command + arguments);
      EXPECT_EQ(ran.exit_code, 0) << arguments << ": " << ran.err;
      EXPECT_NE(ran.out.find("quest"), std::string::npos);
    }
  }
  const Ran bad = run_shell("echo 'return 7' | \"$SLUICE\" check -");
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(bad.err.rfind("error: standard input:1: ", 0), 0U) << bad.err;
}

TEST(Plan, TakesListsOfPasses) {
  const Ran ran = run_sluice({"plan", "quest", "--disable-pass", "fold_constants,merge_common", "--disable-pass", "remove_dead"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "(off)"), 3) << ran.out;
  const Ran help = run_sluice({"plan", "--help"});
  EXPECT_EQ(lines_with(help.out, "--disable-pass A,B,... "), 1) << help.out;
}

TEST(Plan, SaysWhatAPatternKeepsAndReads) {
  const auto plan = [](const std::string& options, const std::string& pattern) {
    const std::string script = "local p = sluice.pattern\nlocal flow = sluice.flow{name = \"x\"" + options +
                               "}\nflow.pattern = " + pattern + "\nreturn flow\n";
    return run_shell("echo '" + script + "' | \"$SLUICE\" plan - --tokens 16384").out;
  };
  const std::string strided = plan("", "p.strided(512, 512)");
  EXPECT_EQ(lines_with(strided, "keeps n - 511 tokens, from 1024 tokens on; 15873 of 16384 tokens"), 1) << strided;
  EXPECT_EQ(lines_with(strided, "the step of the last token reads 63 pages"), 1) << "32 of the window, 31 before\n" << strided;
  EXPECT_EQ(lines_with(strided, "tokens go to slots"), 1) << strided;
  const std::string dense = plan(", prefill = \"dense\"", "p.window(64)");
  EXPECT_EQ(lines_with(dense, "pattern window(64) prefill dense"), 1) << dense;
  EXPECT_EQ(lines_with(dense, "all of a prompt is kept until it is there"), 1) << dense;
  EXPECT_EQ(lines_with(dense, "the step of the last token reads 4 pages"), 1) << dense;
  EXPECT_EQ(lines_with(dense, "tokens go to slots"), 0) << dense;
  const std::string around = plan("", "p.sink(4) | p.window(512)\nfunction flow.index(q, c) return sluice.window{last = 9} end");
  EXPECT_EQ(lines_with(around, "keeps 544 of 16384 tokens at most: flow.index looks at pages"), 1) << around;
  // What the analysis of every length gives up: rows are looked at one by one, as far as the bound allows.
  const std::string hard = run_shell(
                               "printf '%s\\n' 'local p = sluice.pattern' 'local flow = sluice.flow{name = \"x\"}' "
                               "'local a = (p.rect{size = {7, 5}, stride = {2, 1}} >> (p.diag{offset = 3, size = 97, stride = 5} "
                               "& ~p.dilated(11, 13))) | p.window(9)' "
                               "'flow.pattern = (a & ~(p.rect{size = {13, 11}} >> p.dilated(7, 3))) "
                               "| (p.rect{size = {3, 17}} >> (p.fixed(19) & p.strided(5, 23)))' 'return flow' "
                               "| \"$SLUICE\" plan - --tokens 65536")
                               .out;
  EXPECT_EQ(lines_with(hard, "keeps a number of tokens for which no rule was found; 15597 of 65536 tokens"), 1) << hard;
  const std::string blind = plan("", "p.rect{size = {8, 8}}");
  EXPECT_EQ(lines_with(blind, "the step of the last token reads 1 page, its own"), 1) << "its own\n" << blind;
  EXPECT_EQ(lines_with(blind, "inf"), 0) << blind;
}

TEST(Plan, TakesBandwidthsInEveryUnit) {
  const std::string wanted = run_sluice({"plan", "quest", "--bandwidth", "4 GB/s"}).out;
  EXPECT_EQ(lines_with(wanted, "4.0 GB/s"), 1) << wanted;
  for (const std::string same : {"4000 MB/s", "0.004TB/s", "4"}) {
    const std::string out = run_sluice({"plan", "quest", "--bandwidth", same}).out;
    const auto roofline = [](const std::string& text) { return text.substr(text.find("decode step of one layer")); };
    ASSERT_EQ(lines_with(out, "decode step of one layer"), 1) << same;
    EXPECT_EQ(roofline(out), roofline(wanted)) << same;
  }
}

TEST(Plan, HasUnitsForTheLargest) {
  const std::vector<std::string> large = {"plan", "full", "--tokens", "30000000", "--batch", "4000", "--bandwidth", "4 GB/s"};
  const std::string out = run_sluice(large).out;
  // 30000000 tokens of 4000 requests, keys and values of 2 heads of 64 in 2 bytes
  EXPECT_GE(lines_with(out, "61.44 TB  15360.00 s"), 1) << out;
}

TEST(Plan, CountsTheScoresOfTheStepWhereNoKernelDoesWholeRows) {
  const std::string flow =
      "local flow = sluice.flow { name = 'product', page = 8 }\n"
      "function flow.cache(c) c.high = c.k:max('token') end\n"
      "function flow.index(q, c)\n"
      "  return sluice.topk(sluice.exp(q * c.high):max('dim'):max('head'), {ratio = 1/8, first = 1, last = 2})\n"
      "end\n"
      "return flow\n";
  const Ran ran = run_shell("echo \"" + flow + "\" | \"$SLUICE\" plan - --device cuda --tokens 8192");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "not in one kernel"), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "rows of 1021 scores"), 1) << ran.out;  // 1024 pages, of which three are always taken
}

TEST(Plan, SaysHowAGpuRunsIt) {
  const std::string out = run_sluice({"plan", "quest", "--device", "cuda"}).out;
  EXPECT_EQ(lines_with(out, "on a GPU, a sparse layer of a decode step"), 1) << out;
  EXPECT_GE(lines_with(out, "kB of shared memory"), 1) << out;
  EXPECT_EQ(lines_with(out, "slow:"), 0) << out;
  EXPECT_EQ(lines_with(out, "which those of 8192 are not: "), 1) << out;
  EXPECT_EQ(lines_with(out, "attend_rows "), 1) << out;
  EXPECT_EQ(lines_with(out, "not here: of 8 x 2 KV heads a block would have 2, too few"), 1) << out;
  std::vector<std::string> large = {"plan", "block_topk", "--device", "cuda", "--geometry", "qwen3-1.7b", "--batch", "64"};
  EXPECT_EQ(lines_with(run_sluice(large).out, "taken here: 64 x 8 KV heads are 128 blocks"), 1);
  const std::vector<std::string> wide = {"plan", "quest", "--device", "cuda", "--geometry", "qwen3-32b", "--batch", "64"};
  EXPECT_EQ(lines_with(run_sluice(wide).out, "a block has no room for rows of any length"), 1);
  large.back() = "67";
  EXPECT_EQ(lines_with(run_sluice(large).out, "not here: 67 x 8 KV heads are 134 blocks of 4, and 99 to 132 are worth it"), 1);
  large.back() = "64";
  large.insert(large.end(), {"--tokens", "65536"});
  EXPECT_EQ(lines_with(run_sluice(large).out, "not here: rows of 4096 pages do not fit a block"), 1);
  large.back() = "8192";
  EXPECT_EQ(lines_with(run_sluice(large).out, "not here: 64 x 8 KV heads are more rows than multiprocessors"), 1);
  large[large.size() - 3] = "4";
  EXPECT_EQ(lines_with(run_sluice(large).out, "taken here: 4 x 8 KV heads are clusters of about 3"), 1);
  large.back() = "65552";
  EXPECT_EQ(lines_with(run_sluice(large).out, "not here: rows of 4097 pages"), 1);
  const std::string whole = run_sluice({"plan", "h2o", "--device", "cuda"}).out;
  EXPECT_EQ(lines_with(whole, "attend_rows "), 0);
  EXPECT_EQ(lines_with(whole, "attend_in_cluster "), 0);
  EXPECT_EQ(lines_with(whole, "no kernel does both: it saves a state"), 1) << whole;
  const std::string normalized = run_sluice({"plan", "nsa_topk", "--device", "cuda"}).out;
  EXPECT_EQ(lines_with(normalized, "no kernel does both: "), 1) << normalized;
  const std::string longer = run_sluice({"plan", "quest", "--device", "cuda", "--tokens", "30000000"}).out;
  EXPECT_EQ(lines_with(longer, "on a GPU, a sparse layer of a decode step: 5 launches"), 1) << longer;
  EXPECT_EQ(lines_with(longer, "rows of at most about 1572864 tokens, which those of 30000000 are not: 2 launches"), 1) << longer;
  EXPECT_EQ(lines_with(run_sluice({"plan", "full", "--device", "cuda"}).out, "on a GPU: attention to all pages, dense"), 1);
  EXPECT_EQ(lines_with(run_sluice({"plan", "quest"}).out, "on a GPU"), 0);
}

/// A flow that names the method of its top-k.
std::string flow_by(const Folder& folder, const std::string& method) {
  return folder.write(method + ".lua", R"(
    local flow = sluice.flow { name = "by", page = 16 }
    function flow.cache(c) c.m = c.k:mean("token") end
    function flow.index(q, c)
      local s = q:dot(c.m)
      return sluice.topk(s:max("head"), { ratio = 1 / 8, last = 1, method = ")" +
                                           method +
                                           R"(" }) end
    return flow)");
}

TEST(Plan, SaysByWhichMethodAGpuSelects) {
  const Folder folder;
  const auto planned = [&](const std::string& method, const std::string& tokens) {
    return run_sluice({"plan", flow_by(folder, method), "--device", "cuda", "--batch", "2", "--tokens", tokens}).out;
  };
  const std::string any = planned("auto", "8192");
  EXPECT_EQ(lines_with(any, "topk: method radix (auto): the only one of rows that are held on chip"), 1) << any;
  EXPECT_EQ(lines_with(any, "method gvr (auto): of 4 rows of "), 1) << "of longer rows: " << any;
  const std::string large =
      run_sluice({"plan", flow_by(folder, "auto"), "--device", "cuda", "--batch", "64", "--tokens", "30000000"}).out;
  EXPECT_EQ(lines_with(large, "method radix, after a guess from a sample (auto): of 128 rows of 1874999 scores"), 1) << large;
  const std::string radix = planned("radix", "8192");
  EXPECT_EQ(lines_with(radix, "method radix, as the flow says"), 2) << radix;
  EXPECT_EQ(lines_with(radix, "(auto)"), 0) << radix;
  const std::string gvr = planned("gvr", "8192");
  EXPECT_EQ(lines_with(gvr, "method gvr, as the flow says"), 1) << gvr;
  EXPECT_EQ(lines_with(gvr, "(auto)"), 0) << gvr;
  EXPECT_EQ(lines_with(gvr, "index_row"), 0) << gvr;
  EXPECT_EQ(lines_with(gvr, "topk is to begin with what the last step took (method \"gvr\")"), 1) << gvr;
}

TEST(Plan, SaysThatCpusHaveOneMethod) {
  const Folder folder;
  for (const std::string method : {"auto", "radix", "gvr"}) {
    const std::string out = run_sluice({"plan", flow_by(folder, method), "--device", "cpu"}).out;
    EXPECT_EQ(lines_with(out, "on the CPU: topk has one method, whichever a flow names"), 1) << out;
  }
  EXPECT_EQ(lines_with(run_sluice({"plan", "streaming"}).out, "topk has one method"), 0);
}

/// One that reads more than dense attention, and keeps more of a page than a block of a GPU has room for.
constexpr const char* kWideFlow = R"(
  local flow = sluice.flow { name = "wide", page = 128 }
  function flow.index(q, c)
    local best = (q * c.k):softmax("dim"):max("dim"):max("token"):max("head")
    return sluice.topk(best, { ratio = 1 })
  end
  return flow)";

TEST(Plan, SaysWhatAGpuIsSlowAt) {
  const Folder folder;
  const Ran ran = run_sluice({"plan", folder.write("wide.lua", kWideFlow), "--device", "cuda", "--geometry", "qwen3-8b"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "slow: what a block keeps"), 1) << ran.out;
}

TEST(Plan, SaysWhereNoRowFitsOneKernelOfAGpu) {
  const Folder folder;
  const std::string path = folder.write("wide_rows.lua", R"(
    local flow = sluice.flow { name = "wide_rows", page = 16 }
    function flow.cache(c) c.m = c.k:mean_interleave("token", 1) end
    function flow.index(q, c)
      local s = q:dot(c.m):softmax("page"):softmax("page")
      return sluice.topk(s:max("sub"):max("head"), { k = 8, last = 1 })
    end
    return flow)");
  const Ran ran = run_sluice({"plan", path, "--device", "cuda", "--geometry", "qwen3-32b"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "not in one kernel: 128 pages of a row"), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "index_row"), 0) << ran.out;
}

TEST(Plan, SaysWhatAGpuRefuses) {
  const Folder folder;
  const Ran wide = run_sluice({"plan", folder.write("wide.lua", R"(
    local flow = sluice.flow { name = "wide", kv = "f32" }
    function flow.index(q, c) return sluice.window { first = 1, last = 4 } end
    return flow)"),
                               "--device", "cuda"});
  EXPECT_EQ(wide.exit_code, 1);
  EXPECT_EQ(lines_with(wide.out, "on a GPU: refused, KV as f32"), 1) << wide.out;
  EXPECT_EQ(wide.err.rfind("error: on a GPU: refused, KV as f32", 0), 0U) << wide.err;
  EXPECT_EQ(lines_with(wide.out, "decode step of one layer"), 0) << wide.out;
  const std::string path = folder.write("nine.lua", R"(
    local flow = sluice.flow { name = "nine" }
    function flow.index(q, c)
      local all = sluice.window { last = 1 }
      for i = 2, 9 do all = sluice.union(all, sluice.topk(sluice.position() * i, { k = i })) end
      return all
    end
    return flow)");
  const std::string out = run_sluice({"plan", path, "--device", "cuda"}).out;
  EXPECT_EQ(lines_with(out, "on a GPU: refused, a union of 9 selections; device \"cuda\" joins at most 8"), 1) << out;
}

TEST(Plan, HasTheStepsThatFollowAttention) {
  const Ran ran = run_sluice({"plan", "heavy_hitters", "--tokens", "8192"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "after prompts all"), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "  then 0 pages "), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "  then 1 save "), 1) << ran.out;
  const Ran on_gpu = run_sluice({"plan", "heavy_hitters", "--device", "cuda"});
  EXPECT_EQ(lines_with(on_gpu.out, "  after_0 "), 2) << on_gpu.out;  // of short rows and of long ones
  const Ran evicting = run_sluice({"plan", "h2o_tokens", "--device", "cuda"});
  EXPECT_EQ(lines_with(evicting.out, "  evict      a block"), 1) << evicting.out;
  EXPECT_EQ(lines_with(evicting.out, "states written"), 1) << evicting.out;
}

TEST(Plan, SaysThatAGpuRunsTheAfterStageUnderAPattern) {
  const Folder folder;
  const Ran ran = run_sluice({"plan", folder.write("x.lua", R"(
    local flow = sluice.flow { name = "x" }
    function flow.cache(c) c.a = c.k:mean("token") end
    flow.pattern = sluice.pattern.window(64)
    function flow.index(q, c)
      local s = q:dot(c.a):max("head") + 0 * sluice.load("m", { axes = { "head" } }):sum("head")
      return sluice.topk(s, { k = 3, last = 1 })
    end
    function flow.after(q, c, mass) sluice.save("m", mass:sum("token"):sum("page")) end
    return flow)"),
                              "--device", "cuda"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out.find("refused"), std::string::npos) << ran.out;
  EXPECT_GE(lines_with(ran.out, "  after_0 "), 1) << ran.out;
}

TEST(Plan, SaysWhatOfAPageThatLeavesATailAGpuSaves) {
  const Ran ran = run_sluice({"plan", "luka_choices[compressor=weighted]", "--device", "cuda"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out.find("refused"), std::string::npos) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "states written"), 1) << ran.out;
}

TEST(Plan, SaysWhatTheCpuRefuses) {
  const Folder folder;
  const Ran ran = run_sluice({"plan", folder.write("narrow.lua", R"(
    local flow = sluice.flow { name = "narrow", kv = "e4m3" }
    function flow.index(q, c) return sluice.window { first = 1, last = 4 } end
    return flow)")});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(lines_with(ran.out, "on the CPU: refused, the CPU keeps KV as bf16 or f32, not as e4m3"), 1) << ran.out;
}

TEST(Plan, SaysSoWhereAFlowIsNotJudged) {
  const Folder folder;
  const std::string path = folder.write("large.lua", R"(
    local flow = sluice.flow { name = "large", page = 8 }
    function flow.cache(c)
      for i = 1, 7 do c["field" .. i] = c.k * i end
    end
    function flow.index(q, c)
      local all = c.field1
      for i = 2, 7 do all = all + c["field" .. i] end
      return sluice.topk(q:dot(all):max("token"):max("head"), { k = 8, last = 1 })
    end
    return flow)");
  const Ran ran = run_sluice({"plan", path});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "not judged: the cached fields make a page 9216 bytes, 4.5 times its K and V"), 1) << ran.out;
  const Ran checked = run_sluice({"check", path});
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_NE(checked.err.find("large.lua:2: the cached fields make a page 9216 bytes"), std::string::npos) << checked.err;
}

TEST(Plan, SaysSoWhereNoLayerIsSparse) {
  const Folder folder;
  const Ran ran = run_sluice({"plan", folder.write("dense.lua", R"(
    local flow = sluice.flow { name = "dense", layers = { rest = "full" } }
    function flow.cache(c) c.m = c.k:mean("token") end
    function flow.index(q, c) return sluice.topk(q:dot(c.m):max("head"), { k = 8, last = 1 }) end
    return flow)"),
                              "--device", "cuda"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "on a GPU: attention to all pages, dense, since no layer is sparse"), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "of the newest page"), 0) << ran.out;
}

TEST(Plan, SaysWhereTheLastStepIsNoMeasure) {
  EXPECT_EQ(lines_with(run_sluice({"plan", "strided_block_local", "--tokens", "12000"}).out, "it sees nothing, so its bytes"), 1);
  EXPECT_EQ(lines_with(run_sluice({"plan", "strided_block_local", "--tokens", "12001"}).out, "it sees nothing"), 0);
}

TEST(Plan, OpensAPictureBeforeTheWork) {
  const Folder folder;
  for (const std::string file : {folder.path("nowhere/x.svg"), std::string()}) {
    const Ran ran = run_sluice({"plan", "strided", "--svg", file});
    EXPECT_EQ(ran.exit_code, 1) << file;
    EXPECT_TRUE(ran.out.empty()) << "nothing is shown before";
    EXPECT_EQ(lines_with(ran.err, "error: "), 1) << ran.err;
  }
}

TEST(Plan, SaysWhereAFlowReadsMoreThanDense) {
  const Folder folder;
  const std::string out = run_sluice({"plan", folder.write("wide.lua", kWideFlow)}).out;
  EXPECT_EQ(lines_with(out, "1.50x more than dense"), 1) << out;
}

TEST(CheckAndPlan, EndOnUnionsOfUnions) {
  const Folder folder;
  const std::string path = folder.write("unions.lua", R"(
    local flow = sluice.flow { name = "unions" }
    function flow.index(q, c)
      local a, b = sluice.window { last = 1 }, sluice.window { first = 1 }
      for _ = 1, 200 do a, b = sluice.union(a, b), a end
      return a
    end
    return flow)");
  EXPECT_EQ(run_sluice({"check", path}).exit_code, 0);
  for (const std::string device : {"cpu", "cuda"}) {
    for (const std::vector<std::string>& passes : {std::vector<std::string>{}, {"--disable-pass", "flatten_unions"}}) {
      std::vector<std::string> command = {"plan", path, "--device", device};
      command.insert(command.end(), passes.begin(), passes.end());
      const Ran ran = run_sluice(command);
      EXPECT_EQ(ran.exit_code, 0) << ran.err;
      EXPECT_LT(ran.seconds, 10);
      EXPECT_EQ(lines_with(ran.out, "2 of 512 pages"), 1) << "each selection counts once: " << ran.out;
    }
  }
}

TEST(CheckAndPlan, TakeFlowsWhoseStepsReadMoreThanTheirScripts) {
  const Folder folder;
  const auto flow = [&](int phases) {
    return folder.write("wide.lua", R"(
      local flow = sluice.flow { name = "wide", page = 16 }
      function flow.cache(c) c.m = c.k:mean("token") end
      function flow.index(q, c)
        local f, x = sluice.fill(2, { "page", { "sub", 16384 } }), c.m:mean("page", "dim")
        for i = 1, )" + std::to_string(phases) +
                                        R"( do x = (f * x):mean("sub"):mean("page") end
        return sluice.topk(c.m:mean("dim") * x, { k = 4 })
      end
      return flow)");
  };
  for (const std::string command : {"check", "plan"}) {
    for (const int phases : {85, 86, 127}) {
      const Ran ran = run_sluice({command, flow(phases)});
      EXPECT_EQ(ran.exit_code, 0) << phases << ": " << ran.err;
    }
    const Ran ran = run_sluice({command, flow(128)});
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_NE(ran.err.find("wide.lua:6: mul: the flow computes more than"), std::string::npos) << ran.err;
  }
}

TEST(Plan, SaysWhatHeadsKeepTogether) {
  const Ran ran = run_sluice({"plan", "longnet", "--tokens", "16384"});  // the mini has two KV heads
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(lines_with(ran.out, "12288 of 16384 queries see nothing"), 2) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "KV head 1 of 2: "), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "64 of 16384 tokens, in the head that keeps the most"), 1) << ran.out;
  EXPECT_EQ(lines_with(ran.out, "all 8 layers, 8 of them sparse: "), 1) << "layers count once\n" << ran.out;
  const Ran large = run_sluice({"plan", "longnet", "--geometry", "llama-3.1-8b", "--tokens", "131072"});
  EXPECT_EQ(large.exit_code, 0) << large.err;
  EXPECT_EQ(lines_with(large.out, "KV head 3 of 4: "), 1) << large.out;
  EXPECT_EQ(lines_with(large.out, " of 131072 tokens"), 1) << large.out;
  const Ran windows = run_shell(
      "echo \"local p, t = sluice.pattern, {} local f = sluice.flow{name = 'x'} for i = 1, 8 do t[i] = "
      "p.window(10 * i) end f.pattern = p.by_head(t) return f\" | \"$SLUICE\" plan - --geometry "
      "llama-3.1-8b --tokens 131072");
  EXPECT_EQ(lines_with(windows.out, "keeps 80 tokens, whatever the length"), 1) << windows.out << windows.err;
}

TEST(Plan, ManyPatternsAreAnalysedForLongTexts) {
  const Ran many = run_shell(
      "echo \"local p, t = sluice.pattern, {} local f = sluice.flow{name = 'x'} for i = 1, 16 do t[i] = "
      "p.sink(4) | p.window(100 * i) end f.pattern = p.by_head(t) return f\" | \"$SLUICE\" plan - --geometry "
      "qwen3-32b --tokens 131072");
  EXPECT_EQ(many.exit_code, 0) << many.err;
  EXPECT_EQ(lines_with(many.out, "keeps 804 tokens, whatever the length"), 1) << many.out;
}

TEST(Plan, SaysWhatATextThatGoesOnKeeps) {
  const auto plan = [](const std::string& pattern, const std::string& tokens) {
    const std::string flow = "local p, f = sluice.pattern, sluice.flow{name = 'x'} f.pattern = " + pattern + " return f";
    return run_shell("echo \"" + flow + "\" | \"$SLUICE\" plan - --tokens " + tokens).out;
  };
  const std::string far = plan("p.window(2) | p.diag{offset = 3000, size = 1}", "4096");
  EXPECT_EQ(lines_with(far, "1098 of 4096 tokens, and 3001 while the text goes on"), 1) << far;
  EXPECT_EQ(lines_with(plan("p.window(64)", "4096"), "64 of 4096 tokens"), 1);
  const std::string later = plan("p.diag{offset = 500}", "200");
  EXPECT_EQ(lines_with(later, "0 of 200 tokens, and 200 while the text goes on"), 1) << "all are read 500 steps later\n" << later;
  const std::string tenths = plan("p.rect{size = {10, 1}} >> p.causal()", "3002");
  EXPECT_EQ(lines_with(tenths, "301 of 3002 tokens, and 3002 while the text goes on"), 1) << tenths;
  EXPECT_EQ(lines_with(plan("p.window(64)", "4096"), "while the text goes on"), 0);
  const std::string long_text = plan("p.strided(500, 500)", "1073741824");
  EXPECT_EQ(lines_with(long_text, "those of 1048576 tokens"), 1) << long_text;
  EXPECT_EQ(lines_with(long_text, "30.80x less than dense"), 1) << long_text;
}

// Rows at a fixed distance would hit all of a stride, or miss them.
TEST(Plan, SharesOfPatternsAreCountedOrSaidToBeAbout) {
  const auto shares = [](const std::string& pattern, const std::string& tokens) {
    const Ran ran = run_shell("printf '%s\\n' 'local p, f = sluice.pattern, sluice.flow{name = \"x\"}' 'f.pattern = " + pattern +
                              "' 'return f' | \"$SLUICE\" plan - --tokens " + tokens);
    const size_t at = ran.out.find("  sees ");
    return at == std::string::npos ? ran.err : ran.out.substr(at + 7, ran.out.find('%', at) - at - 6);
  };
  EXPECT_EQ(shares("p.rect{stride = {64, 1}, offset = {63, 0}}", "1024"), "1.7%");
  EXPECT_EQ(shares("p.rect{stride = {7, 1}, offset = {6, 0}}", "8192"), "14.3%");
  EXPECT_EQ(shares("p.rect{stride = {512, 1}, offset = {511, 0}} | p.window(1)", "16384"), "0.2%");
  EXPECT_EQ(shares("p.window(1000)", "1000000"), "about 0.2%");
}

TEST(Plan, NamesTheLineOfAPatternThatTakesTooLong) {
  const Ran ran = run_shell(
      "printf '%s\\n' 'local p = sluice.pattern' 'local f, a = sluice.flow{name = \"x\"}, p.window(3)' "
      "'for k = 1, 12 do a = a | (p.rect{size = {7 + k, 5 + k}, stride = {2, 1}} >> "
      "(p.diag{offset = 3, size = 97 + k, stride = 5} & ~p.dilated(11 + k, 13 + k))) end' 'f.pattern = a' 'return f' "
      "| \"$SLUICE\" plan - --tokens 131072");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find(":4: the pattern is too complex to be analysed"), std::string::npos) << ran.err;
}

TEST(Plan, DrawsPatterns) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory.path() + "/pattern.svg";
  for (const auto& [flow, pictures] : {std::pair<const char*, int>{"sink_window", 1}, {"longnet", 2}, {"nsa_window", 1}}) {
    const Ran ran = run_sluice({"plan", flow, "--tokens", "2000", "--svg", file});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const std::string svg = testing::read_text(file);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << flow;
    EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>')) << flow;
    size_t groups = 0;
    for (size_t at = svg.find("<g "); at != std::string::npos; at = svg.find("<g ", at + 1)) ++groups;
    EXPECT_EQ(groups, static_cast<size_t>(pictures)) << flow;
  }
  EXPECT_NE(testing::read_text(file).find("beside the selection: 8 layers</text>"), std::string::npos);
  const Ran none = run_sluice({"plan", "quest", "--svg", file});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("has no pattern to draw"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace sluice::test
