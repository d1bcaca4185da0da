// Bad input gives one clear message and exit code 1 at once.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/refused.h"

namespace sluice::test {
namespace {

std::string flow(const std::string& cache, const std::string& index) {
  return "local flow = sluice.flow { name = 'bad' }\n"
         "function flow.cache(c)\n" +
         cache +
         "\nend\n"
         "function flow.index(q, c)\n" +
         index +
         "\nend\n"
         "return flow\n";
}

const std::string kGoodIndex = "return sluice.topk((q * c.m):sum('dim'):max('head'), { k = 4, first = 1, last = 1 })";
const std::string kGoodCache = "c.m = c.k:mean('token')";

struct BadFlow {
  std::string name;
  std::string source;
  std::string message;  // part of it
};

class BadFlows : public ::testing::TestWithParam<BadFlow> {};

TEST_P(BadFlows, AreRefusedByEval) {
  const Folder folder;
  const std::string path = folder.write("bad.lua", GetParam().source);
  const Ran ran = run_sluice({"eval", path});
  expect_refused(ran, GetParam().message);
  EXPECT_NE(ran.err.find("bad.lua"), std::string::npos) << ran.err;
}

TEST_P(BadFlows, AreRefusedByCheck) {
  const Folder folder;
  expect_refused(run_sluice({"check", folder.write("bad.lua", GetParam().source)}), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Flows, BadFlows,
    ::testing::Values(BadFlow{"SyntaxError", flow(kGoodCache, "return return"), "bad.lua:6"},
                      BadFlow{"UnknownOperator", flow(kGoodCache, "return sluice.topkk(q, {k=4})"), "topkk"},
                      BadFlow{"UnknownMethod", flow("c.m = c.k:median('token')", kGoodIndex), "median"},
                      BadFlow{"WrongAxes", flow("c.m = c.k:mean('page')", kGoodIndex), "page"},
                      BadFlow{"ScoreWithHeads", flow(kGoodCache, "return sluice.topk((q * c.m):sum('dim'), {k=4})"), "head"},
                      BadFlow{"IndexOperatorInCache", flow("c.m = c.k:softmax('token')", kGoodIndex), "bad.lua:3"},
                      BadFlow{"NoSelection", flow(kGoodCache, ""), "index"},
                      BadFlow{"EndlessLoop", flow(kGoodCache, "while true do end"), "bad.lua"},
                      BadFlow{"BillionCharacters", flow(kGoodCache, "local s = ('x'):rep(1e9) " + kGoodIndex), "bad.lua"},
                      BadFlow{"Bytecode", std::string("\x1bLuaT\0\x19\x93\r\n\x1a\n", 12), "bad.lua"},
                      BadFlow{"NothingAtAll", "", "bad.lua"}),
    [](const auto& of) { return of.param.name; });

TEST(BadRequest, PromptLongerThanThePoolIsRefused) {
  std::string ids = "1";
  for (int i = 0; i < 9000; ++i) ids += ",9";
  expect_refused(run_sluice({"generate", "--ids", ids, "--pool-mib", "8"}), "pool");
}

TEST(BadRequest, GenerateWantsOnePrompt) {
  expect_refused(run_sluice({"generate"}), "nothing to continue");
  expect_refused(run_sluice({"generate", "--ids", "1", "--prompt", "ask"}), "more than one prompt");
  expect_refused(run_sluice({"generate", "--ids", "1", "--ids-file", "ids"}), "more than one prompt");
  const Folder folder;
  expect_refused(run_sluice({"generate", "--ids-file", folder.write("ids", "1,2\n3 x4")}), "x4");
}

TEST(BadRequest, NoFileIsLeftWhereTheFlowIsRefused) {
  const Folder folder;
  const std::string logits = folder.path("logits.safetensors");
  expect_refused(run_sluice({"generate", "--ids", "1", "--logits", logits, "--flow", folder.write("bad.lua", "x")}), "bad.lua");
  EXPECT_FALSE(std::filesystem::exists(logits));
}

TEST(BadRequest, ContextLongerThanTheModelIsRefused) {
  expect_refused(run_sluice({"eval", "--dense-only", "--tasks", "needle_multivalue", "--tokens", "17000"}), "16384");
}

TEST(BadRequest, CudaWithoutAGpuIsRefused) {
  // Where there is one it is hidden.
  for (const std::string command : {"eval full", "generate --prompt x", "bench serve", "bench gemm"}) {
    const std::string line = "CUDA_VISIBLE_DEVICES= \"$SLUICE\" " + command + " --device cuda";
    expect_refused(run_shell(line), "device \"cuda\" is not available");
  }
}

TEST(BadRequest, WrongOptionsOfEvalAreRefused) {
  expect_refused(run_sluice({"eval"}), "flow");
  expect_refused(run_sluice({"eval", "no_such_flow"}), "no_such_flow");
  expect_refused(run_sluice({"eval", "full", "--suite", "slow"}), "slow");
  expect_refused(run_sluice({"eval", "full", "--tasks", "needles"}), "needles");
  expect_refused(run_sluice({"eval", "full", "--tasks", "jsonl:/no/such.jsonl"}), "/no/such.jsonl");
  expect_refused(run_sluice({"eval", "full", "--tokens", "3"}), "from 64 to 1048576");
  expect_refused(run_sluice({"eval", "full", "--json", "/no/such/folder/result.json"}), "/no/such/folder/result.json");
  expect_refused(run_sluice({"eval", "full", "--k", "2"}), "pass@2");
  expect_refused(run_sluice({"eval", "full", "--suite", "reuse", "--tasks", "jsonl:x"}), "problems have none");
  expect_refused(run_sluice({"eval", "full", "--segment", "512"}), "suite quick copies no segments");
}

TEST(BadRequest, WrongRulesOfCopiesAreRefused) {
  const std::vector<std::string> bench = {"bench", "segments", "--tokens", "512", "--segment", "64"};
  const auto refused = [&](const std::string& rules, const std::string& message_part) {
    std::vector<std::string> command = bench;
    command.insert(command.end(), {"--rules", rules});
    expect_refused(run_sluice(command), message_part);
  };
  refused("none[x=1,y=2]", "parameter is called \"x\"");  // one item, though it has a comma
  refused("quest", "quest has no flow.recompute");
  refused("sparsex[page=8]", "blocks of 8 tokens");
  refused("sparsex[boundary=8]", "there is no layer 8");
}

TEST(BadRequest, BadLinesOfAProblemSetAreNamed) {
  const Folder folder;
  const std::string path = folder.write("set.jsonl", "{\"problem\": \"1+1?\", \"answer\": 2}\n{\"problem\": \"no answer\"}\n");
  expect_refused(run_sluice({"eval", "full", "--tasks", "jsonl:" + path}), "set.jsonl:2");
}

TEST(BadRequest, UnknownCommandsAndOptionsAreRefused) {
  expect_refused(run_sluice({}), "subcommand");
  expect_refused(run_sluice({"evaluate"}), "evaluate");
  expect_refused(run_sluice({"check"}), "flow is required");
  expect_refused(run_sluice({"bench", "bogus"}), "sluice bench bogus");
  const Ran ran = run_sluice({"bench", "gemm", "--no-such-option"});
  expect_refused(ran, "--no-such-option");
  EXPECT_NE(ran.err.find("sluice bench gemm --help"), std::string::npos) << ran.err;
}

TEST(BadRequest, NumbersThatAreNoneAreRefused) {
  const std::vector<std::string> generate = {"generate", "--ids", "1", "--max-tokens", "1"};
  const std::vector<std::string> run = {"run", "quest", "--inputs", "in", "--out", "out"};
  const std::vector<std::string> bench = {"bench", "gemm"};
  struct Bad {
    std::vector<std::string> command;
    std::string option;
    std::string value;
  };
  for (const Bad& bad : {Bad{generate, "--seed", "-1"},
                         {generate, "--seed", "99999999999999999999999"},
                         {generate, "--seed", "010"},
                         {generate, "--seed", "0x10"},
                         {generate, "--seed", ""},
                         {generate, "--top-k", "1e3"},
                         {generate, "--temperature", "nan"},
                         {generate, "--top-p", "inf"},
                         {generate, "--top-p", "0"},
                         {generate, "--top-p", "1e-60"},
                         {generate, "--top-p", "1.01"},
                         {generate, "--threads", "100000"},
                         {run, "--seed", "-1"},
                         {run, "--scale", "nan"},
                         {run, "--scale", "0.5x"},
                         {bench, "--seconds", "nan"},
                         {bench, "--threads", "2.5"},
                         {{"check", "quest"}, "--head-dim", "0"},
                         {{"plan", "quest"}, "--tokens", "0x100"},
                         {{"plan", "quest"}, "--bandwidth", ""},
                         {{"plan", "quest"}, "--bandwidth", "nan GB/s"},
                         {{"plan", "quest"}, "--bandwidth", "1e300"},
                         {{"plan", "quest"}, "--bandwidth", "1e400"},
                         {{"plan", "quest"}, "--bandwidth", "1e-9"},
                         {{"plan", "quest"}, "--bandwidth", "-1"}}) {
    std::vector<std::string> command = bad.command;
    command.insert(command.end(), {bad.option, bad.value});
    expect_refused(run_sluice(command), bad.option);
  }
  for (const std::string ids : {"", ",", "1,", ",1", "1,,2", "1,010", "-1", "1,x", "1 2", "99999999999"}) {
    expect_refused(run_sluice({"generate", "--max-tokens", "1", "--ids", ids}), "--ids");
  }
}

TEST(BadRequest, OptionsThatWouldBeIgnoredAreRefused) {
  expect_refused(run_sluice({"bench", "attention", "--flow", "quest"}), "--flow");
  expect_refused(run_sluice({"bench", "gemm", "--model", "."}), "--model");
  expect_refused(run_sluice({"bench", "topk", "--threads", "2"}), "--threads");
}

TEST(BadRequest, OutputsAreOpenedBeforeTheWork) {
  const Folder folder;
  expect_refused(run_sluice({"bench", "gemm", "--json", "/no/such/folder/gemm.json"}), "/no/such/folder/gemm.json");
  expect_refused(run_sluice({"bench", "gemm", "--json", folder.path("")}), "directory");
  expect_refused(run_sluice({"run", "quest", "--inputs", "in", "--out", "/no/such/folder/out"}), "/no/such/folder/out");
  expect_refused(run_sluice({"generate", "--ids", "1", "--logits", "/no/such/folder/logits"}), "/no/such/folder/logits");
}

TEST(BadRequest, StandardStreamsThatCannotBeUsedAreRefused) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"eval", "quest", "--json", "-"},
                                                  {"bench", "gemm", "--json", "-"},
                                                  {"generate", "--ids", "1", "--logits", "-"},
                                                  {"run", "quest", "--inputs", "in", "--out", "-"}}) {
    expect_refused(run_sluice(command), "standard output cannot be used here");
  }
  expect_refused(run_sluice({"run", "quest", "--inputs", "-", "--out", "out"}), "standard input cannot be used here");
}

TEST(BadRequest, ListsWithoutCommasAreExplained) {
  for (const std::string left : {"trace", "jsonl:set.jsonl", "4096"}) {
    const Ran ran = run_sluice({"eval", "quest", "--tasks", "salad", left});
    expect_refused(ran, "there is no flow \"" + left + "\"");
    EXPECT_NE(ran.err.find("with commas"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("," + left), std::string::npos) << ran.err;
  }
}

TEST(BadRequest, FlowsThatAreTooLargeAreToldTheLimit) {
  const Folder folder;
  for (const size_t size : {size_t{70000}, size_t{2} << 20}) {
    const std::string path = folder.write("large.lua", std::string(size, ' '));
    expect_refused(run_sluice({"check", path}), "65536 bytes");
  }
}

TEST(BadRequest, PromptsThatAreNoUtf8AreRefused) {
  const Folder folder;
  expect_refused(run_sluice({"generate", "--prompt", "acorn \xff"}), "--prompt: not UTF-8 text: there is no character at byte 7");
  expect_refused(run_sluice({"generate", "--prompt-file", folder.write("prompt", "\xc3(")}), "prompt: not UTF-8 text");
}

TEST(BadRequest, FlowsOfBenchmarksAreReadBeforeTheWork) {
  expect_refused(run_sluice({"bench", "index", "--flow", "no_such_flow"}), "no_such_flow");
  expect_refused(run_sluice({"bench", "index", "--flow", "full"}), "selects no pages");
  expect_refused(run_sluice({"bench", "layer", "--flow", "no_such_flow"}), "no_such_flow");
  expect_refused(run_sluice({"bench", "layer", "--flow", "full"}), "selects no pages");
  expect_refused(run_sluice({"bench", "index", "--flow", "full"}), "selects no pages");
  expect_refused(run_sluice({"bench", "index", "--flow", "heavy_tokens"}), "selects tokens");
  for (const char* benchmark : {"index", "layer"}) {
    expect_refused(run_sluice({"bench", benchmark, "--flow", "h2o_quest"}), "evicts tokens");
    expect_refused(run_sluice({"bench", benchmark, "--flow", "pyramid"}), "several programs");
  }
}

TEST(BadRequest, AnEarlierFileStaysWhereTheWorkFails) {
  const Folder folder;
  const std::string out = folder.write("out.safetensors", "earlier");
  expect_refused(run_sluice({"run", "quest", "--inputs", folder.path("absent"), "--out", out}), "absent");
  EXPECT_EQ(read_file(out), "earlier");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 1) << "nothing else is left";
}

TEST(BadRequest, LostOutputIsAnError) {
  expect_refused(run_shell("\"$SLUICE\" check quest > /dev/full"), "standard output");
  expect_refused(run_shell("\"$SLUICE\" plan quest > /dev/full"), "standard output");
  expect_refused(run_shell("\"$SLUICE\" eval --help > /dev/full"), "standard output");
}

TEST(BadRequest, RunningOutOfMemoryIsSaidSo) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers reserve more than any limit";
  const Ran ran = run_shell("ulimit -v 100000; \"$SLUICE\" generate --ids-file <(head -c 50000000 /dev/zero | tr '\\0' ' ')");
  expect_refused(ran, "out of memory");
}

TEST(BadRequest, StandardInputCannotBeReadTwice) {
  expect_refused(run_shell("\"$SLUICE\" eval - - < " SLUICE_SOURCE_DIR "/scripting/flows/quest.lua"), "wanted twice");
  expect_refused(run_shell("echo 1 | \"$SLUICE\" generate --flow - --ids-file -"), "wanted twice");
}

TEST(BadRequest, PipesWaitForTheirWriterAWhile) {
  const Ran ran =
      run_shell("mkfifo pipe; (sleep 0.3; cat " SLUICE_SOURCE_DIR "/scripting/flows/quest.lua > pipe) & \"$SLUICE\" check pipe");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST(BadRequest, PipesWithoutAWriterAreNotWaitedForLong) {
  constexpr double kWithWait = kSeconds + 1;  // for a writer
  const Folder folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(run_sluice({"check", pipe}), "pipe", kWithWait);
  expect_refused(run_sluice({"run", pipe, "--inputs", "in", "--out", "out"}), "in", kWithWait);
  expect_refused(run_sluice({"eval", "full", "--suite", pipe}), "pipe", kWithWait);
  expect_refused(run_sluice({"eval", "full", "--tasks", "jsonl:" + pipe}), "pipe", kWithWait);
  expect_refused(run_sluice({"generate", "--prompt-file", pipe}), "prompt", kWithWait);
}

TEST(BadRequest, DirectoriesInPlaceOfInputsAreRefused) {
  const Folder folder;
  const std::string directory = folder.path("");
  expect_refused(run_sluice({"check", directory}), directory);
  expect_refused(run_sluice({"eval", "full", "--suite", directory}), directory);
  expect_refused(run_sluice({"eval", "full", "--tasks", "jsonl:" + directory}), directory);
  expect_refused(run_sluice({"generate", "--ids-file", directory}), directory);
}

TEST(BadRequest, DeeplyNestedJsonIsRefused) {
  const Folder folder;
  const std::string nested = std::string(300000, '[') + std::string(300000, ']');
  expect_refused(run_sluice({"eval", "full", "--suite", folder.write("suite.json", nested)}), "nested");
  expect_refused(run_sluice({"eval", "full", "--tasks", "jsonl:" + folder.write("set.jsonl", nested)}), "set.jsonl:1: nested");
}

TEST(BadRequest, AServerRefusesFlowsThatItsDeviceDoesNotTake) {
  const Folder folder;
  const auto flow = [&](const std::string& kv) {
    return folder.write(kv + ".lua", "local flow = sluice.flow { name = 'own', kv = '" + kv +
                                         "' }\nfunction flow.index(q, c) return sluice.window { last = 4 } end\nreturn flow\n");
  };
  expect_refused(run_sluice({"serve", "--port", "0", "--flow", flow("e4m3")}), "the CPU keeps KV as bf16 or f32");
  expect_refused(run_sluice({"serve", "--port", "0", "--kv", "e4m3"}), "K and V in e4m3 on cpu");
  expect_refused(run_sluice({"serve", "--port", "0", "--device", "cuda", "--kv", "f32"}), "K and V in f32 on cuda");
  expect_refused(run_sluice({"bench", "index", "--seconds", "0", "--flow", flow("e4m3")}), "the CPU keeps KV as bf16 or f32");
  expect_refused(run_sluice({"serve", "--port", "0", "--device", "cuda", "--flow", flow("f32")}), "KV as f32");
}

TEST(BadRequest, AModelHasAName) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"generate", "--prompt", "hi"},
                                                  {"eval", "quest"},
                                                  {"serve", "--port", "0"},
                                                  {"bench", "serve"},
                                                  {"repl"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--model", ""});
    expect_refused(run_sluice(arguments), "an empty name");
  }
}

TEST(BadRequest, AJudgeIsNotGivenNaNSeconds) {
  const Folder folder;
  for (const char* seconds : {"nan", "inf", "0", "-1"}) {
    expect_refused(run_sluice({"serve", "--port", "0", "--data", folder.path("data"), "--judge-seconds", seconds}),
                   "is no number");
  }
}

TEST(BadInput, AModelWhoseNameIsNoTextIsRefused) {
  const Folder folder;
  const std::string model = folder.link_mini_model(
      "mo\xff"
      "del");
  const std::vector<std::vector<std::string>> commands = {{"serve", "--port", "0"},
                                                          {"serve", "--port", "0", "--data", folder.path("data")},
                                                          {"eval", "quest", "--suite", "verify"},
                                                          {"generate", "--ids", "1", "--max-tokens", "1"},
                                                          {"worker"},
                                                          {"repl"},
                                                          {"bench", "serve"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--model", model});
    const Ran ran = run_sluice(command);
    EXPECT_EQ(ran.exit_code, 1) << command.front() << ran.err;
    EXPECT_NE(ran.err.find("is no UTF-8"), std::string::npos) << command.front() << ran.err;
  }
  const std::string environment = run_shell("SLUICE_MODEL=$'mo\\xffdel' \"$SLUICE\" generate --ids 1").err;
  EXPECT_NE(environment.find("is no UTF-8"), std::string::npos) << environment;
  const Ran within = run_shell("cd '" + model + "' && \"$SLUICE\" serve --port 0 --model .");
  EXPECT_EQ(within.exit_code, 1);
  EXPECT_NE(within.err.find("is no UTF-8"), std::string::npos) << within.err;
}

TEST(BadInput, PathsThatAreNoTextReachNoDocument) {
  const Folder folder;
  const std::string flow = folder.write("fl\xffow.lua", read_file(SLUICE_SOURCE_DIR "/scripting/flows/quest.lua"));
  const std::string suite = folder.write("su\xffite.json", R"([{"task": "needle_multivalue", "tokens": 256, "samples": 1}])");
  const std::string problems = folder.write(
      "s\xff"
      "et.jsonl",
      "{\"problem\": \"acorn\", \"answer\": 1}\n");
  const std::string json = folder.path("re\xffsult.json");
  EXPECT_EQ(run_sluice({"check", flow, "--json"}).exit_code, 0);
  EXPECT_EQ(run_sluice({"eval", flow, "--suite", suite, "--json", json}).exit_code, 0);
  EXPECT_TRUE(nlohmann::json::accept(read_file(json)));
  EXPECT_EQ(run_sluice({"eval", flow, "--tasks", "jsonl:" + problems, "--json", json}).exit_code, 0);
  EXPECT_TRUE(nlohmann::json::accept(read_file(json)));
  EXPECT_EQ(run_sluice({"agent", "add", "ada", "--data", folder.path("da\xffta")}).exit_code, 0);
  EXPECT_EQ(run_sluice({"fsck", "--data", folder.path("da\xffta")}).exit_code, 0);
  const std::string broken = folder.write("broken.jsonl", "{\"problem\": \"\xff\", \"answer\": 1}\n");
  EXPECT_EQ(run_sluice({"eval", "quest", "--tasks", "jsonl:" + broken}).exit_code, 1);
}

}  // namespace
}  // namespace sluice::test
