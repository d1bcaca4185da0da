// Files that are written, and streams that cannot be.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

const std::string kSuite = R"([{"task": "needle_multivalue", "tokens": 256, "samples": 2}])";
const std::string kQuest = SLUICE_SOURCE_DIR "/scripting/flows/quest.lua";

size_t files_in(const Folder& folder) { return static_cast<size_t>(std::distance(fs::directory_iterator(folder.path("")), {})); }

TEST(Streams, WithoutStderrTheExitCodeStays) {
  for (const std::string where : {"2> /dev/full", "2>&-", "<&- 2>&-"}) {
    EXPECT_EQ(run_shell("\"$SLUICE\" check nosuch " + where).exit_code, 1) << where;
    EXPECT_EQ(run_shell("\"$SLUICE\" no_such_command " + where).exit_code, 1) << where;
    EXPECT_EQ(run_shell("\"$SLUICE\" check quest " + where).exit_code, 0) << where;
  }
}

TEST(Streams, WithoutStderrAnEvaluationIsTheSame) {
  const Folder folder;
  const std::string json = folder.path("result.json");
  const std::string line = "\"$SLUICE\" eval quest --suite " + folder.write("suite.json", kSuite) + " --json " + json;
  for (const std::string where : {" 2> /dev/full", " 2>&-"}) {
    const Ran ran = run_shell(line + where);
    EXPECT_EQ(ran.exit_code, 0) << where;
    EXPECT_EQ(nlohmann::json::parse(read_file(json))["flows"][0]["status"], "passed") << where;
    fs::remove(json);
  }
}

TEST(Streams, MessagesHaveNoControlCharacters) {
  const Folder folder;
  const std::string script = folder.write("loud.lua", "error('\\27[2J\\7\\194\\155 loud')");
  const Ran ran = run_sluice({"check", script});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("\\x1b[2J\\x07\\x9b loud"), std::string::npos) << ran.err;
  const Ran table = run_sluice({"eval", script, "full", "--suite", folder.write("suite.json", kSuite)});
  EXPECT_NE(table.out.find("\\x1b[2J"), std::string::npos) << table.out;
}

TEST(Streams, MessagesHideNothing) {
  const Folder folder;
  const Ran ran = run_sluice({"check", folder.write("turned.lua", "error('\\u{202E}evil\\u{200b}', 0)")});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("\\u{202e}evil\\u{200b}"), std::string::npos) << ran.err;
  const std::string named = folder.write("na\u202eme.lua", read_file(kQuest));
  for (const std::string command : {"check", "plan"}) {
    const Ran told = run_sluice({command, named});
    EXPECT_EQ(told.exit_code, 0) << told.err;
    EXPECT_EQ((told.out + told.err).find("\u202e"), std::string::npos) << told.out;
  }
}

TEST(Outputs, NamedPipesNeedAReader) {
  const Folder folder;
  const std::string command = "mkfifo pipe; \"$SLUICE\" eval full --suite " + folder.write("suite.json", kSuite) + " --json pipe";
  const Ran alone = run_shell(command);
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_NE(alone.err.find("nobody reads this pipe"), std::string::npos) << alone.err;
  EXPECT_LT(alone.seconds, 5);
  const Ran read = run_shell("(sleep 0.2; cat pipe > copy) & " + command + " > table; wait; cat copy");
  EXPECT_EQ(nlohmann::json::parse(read.out)["flows"][0]["status"], "passed") << read.err;
}

TEST(Outputs, SignalsLeaveNothingBehind) {
  const Folder folder;
  const std::string json = folder.write("result.json", "earlier");
  for (const std::string signal : {"INT", "TERM", "HUP"}) {
    // Without job control bash would have its child ignore SIGINT; and whoever runs the tests may ignore signals, as nohup does.
    const Ran ran =
        run_shell("set -m; env --default-signal=INT,TERM,HUP \"$SLUICE\" eval quest --suite full --json " + json +
                  " & for i in $(seq 600); do ls -A " + folder.path("") + " | grep -q .tmp && break; sleep 0.05; done; ls -A " +
                  folder.path("") + "; kill -" + signal + " $!; wait $!");
    EXPECT_NE(ran.out.find(".tmp"), std::string::npos) << "written before the work: " << ran.out;
    EXPECT_EQ(ran.exit_code, 128 + (signal == "INT" ? 2 : signal == "TERM" ? 15 : 1)) << ran.err;
    EXPECT_EQ(files_in(folder), 1U) << signal;
  }
  EXPECT_EQ(read_file(json), "earlier");
}

TEST(Outputs, MayHaveTheLongestNames) {
  const Folder folder;
  const std::string logits = folder.path(std::string(250, 'n'));
  const Ran ran = run_sluice({"generate", "--ids", "1", "--max-tokens", "1", "--logits", logits});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(fs::exists(logits));
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(Outputs, GoWhereLinksLead) {
  const Folder folder;
  fs::create_directory(folder.path("elsewhere"));
  fs::create_symlink("elsewhere/second", folder.path("link"));
  fs::create_symlink("target", folder.path("elsewhere/second"));
  for (int time = 0; time < 2; ++time) {  // the first finds no target
    const Ran ran = run_sluice({"generate", "--ids", "1", "--max-tokens", "1", "--logits", folder.path("link")});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(fs::is_symlink(folder.path("link")));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder.path("elsewhere/target"))));
  }
  fs::create_symlink("loop", folder.path("loop"));
  EXPECT_EQ(run_sluice({"generate", "--ids", "1", "--logits", folder.path("loop")}).exit_code, 1);
}

TEST(Outputs, AreNoInputs) {
  const Folder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& file) {
    const std::string before = read_file(file);
    const Ran ran = run_sluice(arguments);
    EXPECT_EQ(ran.exit_code, 1) << file;
    EXPECT_NE(ran.err.find("it is an input"), std::string::npos) << ran.err;
    EXPECT_EQ(read_file(file), before);
  };
  const std::string script = folder.write("self.lua", read_file(kQuest));
  const std::string suite = folder.write("suite.json", kSuite);
  const std::string ids = folder.write("ids", "1");
  const std::string problems = folder.write("set.jsonl", "{\"problem\": \"acorn\", \"answer\": 1}\n");
  const std::string model = folder.link_mini_model("model");
  fs::create_hard_link(script, folder.path("linked.lua"));
  refused({"eval", script, "--json", script}, script);
  refused({"eval", script, "--json", folder.path("linked.lua")}, script);
  refused({"eval", "quest", "--suite", suite, "--json", suite}, suite);
  refused({"eval", "quest", "--tasks", "jsonl:" + problems, "--json", problems}, problems);
  refused({"eval", "quest", "--model", model, "--json", model + "/config.json"}, model + "/config.json");
  refused({"run", "quest", "--inputs", ids, "--out", ids}, ids);
  refused({"run", script, "--inputs", ids, "--out", script}, script);
  refused({"generate", "--ids-file", ids, "--logits", ids}, ids);
  refused({"generate", "--prompt-file", ids, "--logits", ids}, ids);
  refused({"generate", "--ids", "1", "--flow", script, "--logits", script}, script);
  refused({"bench", "index", "--flow", script, "--json", script}, script);
}

}  // namespace
}  // namespace sluice::test
