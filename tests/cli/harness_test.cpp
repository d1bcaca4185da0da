#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>

#include "tests/cli/harness_server.h"
#include "tests/cli/terminal.h"
#include "tests/support/source_path.h"

namespace sluice::test {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string shipped(const std::string& flow) {
  return read_file(testing::source_path("scripting/flows/" + flow + ".lua").string());
}

TEST(Harness, WhoeverWaitsLearnsTheVerdict) {
  const HarnessServer server;
  const Ran passed = server.run("sluice submit quest --notes 'as shipped' --wait");
  EXPECT_EQ(passed.exit_code, 0) << passed.err;
  EXPECT_TRUE(passed.out.starts_with("submission 1, quest by ada: passed\n")) << passed.out;
  EXPECT_TRUE(contains(passed.out, "as shipped")) << passed.out;
  EXPECT_TRUE(contains(passed.out, "numerical")) << passed.out;
  EXPECT_EQ(passed.err, "") << "there is no terminal to show progress on";

  const Ran refused = server.run("echo 'return 1' | sluice submit - --name 'no flow' --parents 1 --wait 60");
  EXPECT_EQ(refused.exit_code, 1) << "no verdict with measurements";
  EXPECT_TRUE(contains(refused.out, "rejected_static")) << refused.out;
  EXPECT_TRUE(contains(refused.out, "hint: ")) << refused.out;

  EXPECT_EQ(server.run("sluice tree 2").out,
            "1 quest by ada: passed\n"
            "  2 no flow by ada: rejected_static\n");
  const Ran list = server.run("sluice list --status rejected_static");
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 3) << list.out;
  EXPECT_EQ(server.run("sluice show 1 --wait 0").exit_code, 0);
  EXPECT_EQ(server.run("sluice show 2").exit_code, 0);
  EXPECT_EQ(server.run("sluice show 2 --wait").exit_code, 1);
  const Ran again = server.run("sluice submit quest --json");
  EXPECT_TRUE(contains(again.out, "\"is_new\": false")) << again.out;
}

TEST(Harness, WhatPassedIsConfirmedByItsOwner) {
  const HarnessServer server;
  ASSERT_EQ(server.run("sluice submit quest --wait").exit_code, 0);
  const Ran confirmed = server.run("sluice confirm 1");
  EXPECT_EQ(confirmed.exit_code, 0) << confirmed.err;
  EXPECT_TRUE(confirmed.out.starts_with("submission 1, quest by ada: passed; confirmed\n")) << confirmed.out;
  EXPECT_TRUE(contains(confirmed.out, "confirmation: confirmed, asked for by ada, 4 times the samples, try 1")) << confirmed.out;
  EXPECT_TRUE(contains(confirmed.out, "  seed ")) << confirmed.out;
  EXPECT_EQ(server.run("sluice confirm 1").out, confirmed.out) << "the same again judges nothing";
  const Ran others = server.run("sluice confirm 1 --token $(sluice agent add bob --data " + server.data() + ")");
  EXPECT_EQ(others.exit_code, 1);
  EXPECT_TRUE(contains(others.err, "submission 1 is another agent's")) << others.err;
  EXPECT_EQ(server.run("sluice confirm 9").exit_code, 1);
}

TEST(Harness, AgentsAreListedWithWhatTheyHandedInAndWithoutTokens) {
  const HarnessServer server;
  const std::string data = " --data " + server.data();
  const std::string token = server.run("sluice agent add zoe --admin" + data).out;
  EXPECT_EQ(server.run("sluice submit quest --wait").exit_code, 0);
  const Ran list = server.run("sluice agent list" + data);
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_EQ(std::regex_replace(list.out, std::regex(R"(\d{4}-\d\d-\d\d)"), "YYYY-MM-DD"),
            "name  role   since       submissions  passed\n"
            "----  -----  ----------  -----------  ------\n"
            "ada   agent  YYYY-MM-DD  1            1\n"
            "zoe   admin  YYYY-MM-DD  0            0\n");
  EXPECT_FALSE(contains(list.out, token.substr(0, token.size() - 1)));
  const Ran nowhere = server.run("sluice agent list --data " + server.data() + "/nowhere");
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_TRUE(contains(nowhere.err, "there are no agents")) << nowhere.err;
}

TEST(Harness, WhatRunsCanBeCancelled) {
  const HarnessServer server;
  EXPECT_EQ(server.run("sluice submit quest --suite full").exit_code, 0);
  const Ran ran = server.run("sluice cancel 1");
  EXPECT_EQ(ran.out, "submission 1, quest by ada: cancelled\n") << ran.err;
  const Ran again = server.run("sluice cancel 1");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(contains(again.err, "has ended")) << again.err;
}

TEST(Harness, ExportsWhatTheRepositoryHas) {
  const HarnessServer server;
  ASSERT_EQ(server.run("sluice submit quest --wait && sluice submit full --parents 1 --notes 'äöü' --wait").exit_code, 0);
  EXPECT_EQ(server.run("sluice export 1").out, shipped("quest"));
  EXPECT_EQ(server.run("sluice export 1 2").exit_code, 1);
  const std::string compare =
      "sluice export --dir flows --status passed || exit 1\n"
      "for file in flow.lua settings.json submission.json; do\n"
      "  for id in 1 2; do\n"
      "    for try in $(seq 100); do  # the repository follows the database\n"
      "      git -c safe.directory='*' -C " +
      server.data() +
      "/lineage.git show refs/submissions/$id:$file > wanted 2> why && break\n"
      "      sleep 0.1\n"
      "    done\n"
      "    cmp wanted flows/$id/$file || cat why\n"
      "  done\n"
      "done\n"
      "grep -c '\"outcome\": \"judged\"' flows/1/evaluation.json";
  const Ran ran = server.run(compare);
  EXPECT_EQ(ran.out, "2 submissions in flows\n1\n") << ran.err;
}

TEST(Harness, WhatWouldBeIgnoredIsRefused) {
  const Ran filtered = run_sluice({"export", "1", "--dir", "flows", "--status", "passed"});
  EXPECT_EQ(filtered.exit_code, 1);
  EXPECT_TRUE(contains(filtered.err, "id excludes --status")) << filtered.err;
  const Ran wait = run_sluice({"submit", "--wait", "quest", "--notes", "new"});
  EXPECT_TRUE(contains(wait.err, "\"quest\" is no whole number") && contains(wait.err, "--wait=SECONDS")) << wait.err;
  EXPECT_TRUE(contains(run_sluice({"leaderboard", "--order", "best"}).err, "--order"));
}

TEST(Harness, AServerThatDoesNotAnswerIsNamed) {
  const Ran ran = run_shell("SLUICE_SERVER=http://127.0.0.1:9 \"$SLUICE\" list");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(contains(ran.err, "http://127.0.0.1:9 does not answer")) << ran.err;
  for (const std::string wrong : {"localhost", "http://", "http://localhost:8080/v1", "https://ada@localhost"}) {
    const Ran refused = run_shell("\"$SLUICE\" list --server " + wrong);
    EXPECT_TRUE(contains(refused.err, "is no address of a server")) << refused.err;
  }
}

TEST(Harness, GenerationTakesSubmissions) {
  const HarnessServer server;
  ASSERT_EQ(server.run("sluice submit quest --name mine --wait").exit_code, 0);
  server.run("echo 'return 1' | sluice submit - --wait");
  const auto complete = [&](const std::string& flow, const std::string& token = "$SLUICE_TOKEN") {
    return server
        .run(
            "exec 3<>/dev/tcp/127.0.0.1/${SLUICE_SERVER##*:}\n"
            "body='{\"prompt\": \"<bos> key acorn = amber ask acorn =\", \"flow\": \"" +
            flow +
            "\", \"max_tokens\": 8, \"temperature\": 0}'\n"
            "printf 'POST /v1/completions HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\nContent-Type: "
            "application/json\\r\\nAuthorization: Bearer %s\\r\\nContent-Length: %s\\r\\n\\r\\n%s' \"" +
            token + "\" ${#body} \"$body\" >&3\ncat <&3")
        .out;
  };
  const auto text = [](const std::string& answer) {
    const size_t begin = answer.find("\"text\":");
    return begin == std::string::npos ? answer : answer.substr(begin, answer.find("}]", begin) - begin);
  };
  const std::string mine = complete("submission:1");
  EXPECT_TRUE(contains(mine, "200 OK")) << mine;
  EXPECT_EQ(text(mine), text(complete("quest")));
  const std::string rejected = complete("submission:2");
  EXPECT_TRUE(contains(rejected, " 400 ") && contains(rejected, "rejected_static")) << rejected;
  EXPECT_TRUE(contains(complete("submission:3"), " 404 "));
  const std::string unknown = complete("submission:1", "guess");
  EXPECT_TRUE(contains(unknown, " 401 ") && contains(unknown, "authentication_error")) << unknown;
}

TEST(ReplSubmissions, GoFromASessionToTheServerAndBack) {
  const HarnessServer server;
  const Ran ran = server.run(
      "sluice repl --tokens 256 --strict <<'END' 2>&1\n"
      ":load quest\n"
      ":submit --wait\n"
      ":page 16\n"
      ":submit coarser\n"
      ":submit coarser\n"
      ":load submission:1\n"
      ":page 32\n"
      ":submit coarsest\n"
      "END");
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_TRUE(contains(ran.out, "submission 1, quest by ada: passed")) << ran.out;
  EXPECT_TRUE(contains(ran.out, server.address() + "/v1/submissions/2")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "the same script with the same settings was there already")) << ran.out;
  const std::string tree = server.run("sluice show 3 --wait > /dev/null; sluice tree 1").out;
  EXPECT_EQ(tree,
            "1 quest by ada: passed\n"
            "  2 coarser by ada: passed\n"
            "  3 coarsest by ada: passed\n");
  EXPECT_EQ(server.run("sluice export 1 | grep sluice.flow").out, "local flow = sluice.flow { name = \"quest\", page = 8 }\n");
}

TEST(ReplSubmissions, WhatCannotBeHandedInIsSaid) {
  const HarnessServer server;
  const auto session = [&](const std::string& lines, const std::string& options = "") {
    return server.run("sluice repl --tokens 256 " + options + " <<'END' 2>&1\n" + lines + "END").out;
  };
  EXPECT_TRUE(contains(session(":submit\n"), "wants a flow that selects pages"));
  EXPECT_TRUE(contains(session(":submit half\n"), "wants a flow that selects pages"));
  EXPECT_TRUE(contains(session(":load 9\n"), "there is no submission 9"));
  EXPECT_TRUE(contains(session(":load quest\n:submit --now\n"), ":submit --wait NAME"));
  EXPECT_TRUE(contains(session(":load quest\n:submit\n", "--token wrong"), "401"));
  EXPECT_TRUE(contains(session(":load quest\n:submit\n", "--server http://127.0.0.1:9"), "does not answer"));
}

TEST(ReplSubmissions, ASessionThatUsesNoServerNeedsNone) {
  const Ran ran =
      run_shell("printf '6 * 7\n:load quest\n:submit\n' | SLUICE_SERVER=ftp://sluice.example \"$SLUICE\" repl --tokens 256 2>&1");
  EXPECT_TRUE(ran.out.starts_with("42\n")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "\"ftp://sluice.example\" is no address of a server")) << ran.out;
}

class HarnessTerminal : public TerminalTest {};

TEST_F(HarnessTerminal, AScriptDoesNotSteerIt) {
  const HarnessServer server;
  ASSERT_EQ(server.run("printf -- '-- \\033]0;mine\\a\n' | sluice submit -").exit_code, 0);
  EXPECT_EQ(server.run("sluice export 1").out, "-- \x1b]0;mine\a\n") << "a pipe takes it as it is";
  Terminal terminal({SLUICE_PROGRAM, "export", "1"}, server.variables());
  EXPECT_TRUE(terminal.shows("-- \\x1b]0;mine\\x07\r\n")) << terminal.rest();
}

TEST_F(HarnessTerminal, CtrlCEndsTheWaitingAndNotTheSession) {
  const HarnessServer server;
  const Folder state;
  auto variables = server.variables();
  variables["XDG_STATE_HOME"] = state.path("");
  // Behind one that takes long, the session's own submission waits.
  ASSERT_EQ(server.run("sluice submit full --suite full").exit_code, 0);
  Terminal terminal({SLUICE_PROGRAM, "repl", "--tokens", "256"}, variables);
  ASSERT_TRUE(terminal.shows("> ")) << terminal.rest();
  terminal.type(":load quest\r");
  ASSERT_TRUE(terminal.shows("return flow")) << terminal.rest();
  terminal.type(":submit --wait\r");
  ASSERT_TRUE(terminal.shows("  queued  ")) << terminal.rest();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("submission 2, quest by ada: queued")) << terminal.rest();
  terminal.type("6 * 7\r");
  ASSERT_TRUE(terminal.shows("\n42\r")) << terminal.rest();
}

/// A line that runs the demo with what was built; verifying alone takes it a second.
std::string demo() { return "SLUICE=\"$SLUICE\" '" + testing::source_path("dev").string() + "' demo --suite verify"; }

TEST(Demo, JudgesTheShippedFlowsAndEndsItsServer) {
  const Ran ran = run_shell("TMPDIR=$PWD " + demo() + " < /dev/null; echo \"exit $?\"; ls");
  for (const char* flow : {"full", "streaming", "block_topk", "quest", "double_sparse", "nsa_topk", "h2o", "random"}) {
    EXPECT_TRUE(contains(ran.out, fmt::format(", {} by demo: passed", flow))) << ran.out << ran.err;
  }
  EXPECT_TRUE(contains(ran.out, "rank")) << ran.out;
  EXPECT_TRUE(ran.out.ends_with("exit 0\n")) << "its folder is gone as well: " << ran.out << ran.err;
  const size_t address = ran.out.find("http://");
  ASSERT_NE(address, std::string::npos);
  const std::string server = ran.out.substr(address, ran.out.find(',', address) - address);
  EXPECT_TRUE(contains(run_sluice({"list", "--server", server}).err, "does not answer"));
}

TEST(Demo, FailsIfAFlowIsNotJudged) {
  const Ran ran = run_shell(
      "echo 'exec \"$REAL\" ${*/random/missing}' > program; chmod +x program\n"
      "sed -i '1i #!/bin/bash' program; REAL=\"$SLUICE\" SLUICE=$PWD/program " +
      testing::source_path("dev").string() + " demo --suite verify < /dev/null");
  EXPECT_EQ(ran.exit_code, 1) << ran.out;
  EXPECT_TRUE(contains(ran.err, "not judged to the end: random")) << ran.err;
}

TEST_F(HarnessTerminal, TheDemoServesUntilEnter) {
  Terminal terminal({testing::source_path("dev").string(), "demo", "--suite", "verify"}, {{"SLUICE", SLUICE_PROGRAM}});
  ASSERT_TRUE(terminal.shows("a server for agents at http://")) << terminal.rest();
  ASSERT_TRUE(terminal.shows("The server goes on: look at ")) << terminal.rest();
  ASSERT_TRUE(terminal.shows("ends it.")) << terminal.rest();
  terminal.type("\r");
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(HarnessTerminal, CtrlCEndsTheDemo) {
  Terminal terminal({testing::source_path("dev").string(), "demo", "--suite", "verify"}, {{"SLUICE", SLUICE_PROGRAM}});
  ASSERT_TRUE(terminal.shows("ends it.")) << terminal.rest();
  terminal.type("\x03");
  EXPECT_EQ(terminal.exit_code(), 0);
}

}  // namespace
}  // namespace sluice::test
