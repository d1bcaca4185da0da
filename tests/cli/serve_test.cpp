#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/program.h"
#include "tests/support/temporary_directory.h"

namespace sluice::test {
namespace {

/// Starts the server, runs `line` with its port in $port, ends it by a signal and prints how that went.
Ran with_server(const std::string& options, const std::string& line) {
  return run_shell("\"$SLUICE\" serve --port 0 " + options +
                   " > out 2> err & server=$!\n"
                   "for i in $(seq 300); do grep -q serving out && break; sleep 0.05; done\n"
                   "port=$(sed 's/.*://' out)\n" +
                   line +
                   "\nbegun=$(date +%s%N)\nkill -TERM $server; wait $server; echo \"exit $? after $((($(date +%s%N) - begun) / "
                   "1000000)) ms\"\ncat err >&2");
}

/// Sends a POST of JSON and prints the answer, by bash alone.
std::string post(const std::string& path, const std::string& body) {
  return "exec 3<>/dev/tcp/127.0.0.1/$port\nprintf 'POST " + path +
         " HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\nContent-Type: application/json\\r\\nContent-Length: " +
         std::to_string(body.size()) + "\\r\\n\\r\\n%s' '" + body + "' >&3\ncat <&3; echo";
}

int count(const std::string& out, const std::string& text) {
  int times = 0;
  for (size_t at = out.find(text); at != std::string::npos; at = out.find(text, at + 1)) ++times;
  return times;
}

int milliseconds_to_stop(const Ran& ran) {
  const size_t at = ran.out.find("exit 0 after ");
  return at == std::string::npos ? -1 : std::stoi(ran.out.substr(at + 13));
}

TEST(Serve, AnswersAsGenerateDoesAndStopsAtASignal) {
  const std::string prompt = "<bos> key acorn = amber ask acorn =";
  const std::string wanted =
      run_sluice({"generate", "--prompt", prompt, "--max-tokens", "12", "--ignore-eos", "--flow", "quest"}).out;
  ASSERT_FALSE(wanted.empty());
  const Ran ran =
      with_server("", post("/v1/completions",
                           R"({"prompt":")" + prompt + R"(","max_tokens":12,"ignore_eos":true,"temperature":0,"flow":"quest"})"));
  const std::string text = "\"text\":\"" + wanted.substr(0, wanted.size() - 1) + "\"";
  EXPECT_NE(ran.out.find(text), std::string::npos) << ran.out << ran.err;
  EXPECT_GE(milliseconds_to_stop(ran), 0) << ran.out << ran.err;
  EXPECT_LT(milliseconds_to_stop(ran), 2000);
  EXPECT_NE(ran.err.find("POST /v1/completions 200"), std::string::npos) << ran.err;
}

TEST(Serve, StopsInTimeWhileItGenerates) {
  const std::string body = R"({"prompt":"<bos> key","max_tokens":15000,"ignore_eos":true,"stream":true})";
  const Ran ran = with_server(
      "--quiet", "( " + post("/v1/completions", body) + " ) > answer &\nwhile ! grep -q data: answer; do sleep 0.05; done");
  EXPECT_GE(milliseconds_to_stop(ran), 0) << ran.out << ran.err;
  EXPECT_LT(milliseconds_to_stop(ran), 2500);
}

TEST(Serve, LimitsRates) {
  const std::string get =
      "exec 3<>/dev/tcp/127.0.0.1/$port\nprintf 'GET /v1/guide HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' "
      ">&3\ncat <&3 | grep -aE '^(HTTP|Retry-After)'\n";
  const std::string many = "for i in $(seq 40); do\n" + get + "done";
  const Ran limited = with_server("--data data --quiet --reads-per-second 1", many);
  EXPECT_NE(limited.out.find("HTTP/1.1 200"), std::string::npos) << limited.out << limited.err;
  EXPECT_NE(limited.out.find("HTTP/1.1 429"), std::string::npos) << limited.out;
  EXPECT_NE(limited.out.find("Retry-After: 1"), std::string::npos) << limited.out;
  const Ran unlimited = with_server("--data data --quiet --reads-per-second 0", many);
  EXPECT_EQ(unlimited.out.find("HTTP/1.1 429"), std::string::npos) << unlimited.out;
}

/// The status of an answer without a token.
std::string status(const std::string& method, const std::string& path) {
  return "exec 3<>/dev/tcp/127.0.0.1/$port\nprintf '" + method + " " + path +
         " HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\nContent-Type: application/json\\r\\nContent-Length: "
         "%s\\r\\n\\r\\n%s' $([ " +
         method + " = POST ] && echo '14 {\"prompt\":\"a\"}' || echo 0) >&3\nhead -1 <&3 | cut -d' ' -f2\n";
}

TEST(Serve, TellsNothingWithoutATokenIfItIsToldSo) {
  const std::string asked = status("GET", "/v1/models") + status("GET", "/v1/submissions") + status("GET", "/metrics") +
                            status("GET", "/health") + status("GET", "/v1/health") + status("GET", "/v1/openapi.json");
  const Ran closed = with_server("--data data --quiet --token-for-reading", asked);
  EXPECT_TRUE(closed.out.starts_with("401\n401\n401\n200\n200\n200\n")) << closed.out << closed.err;
}

TEST(Serve, CompletionsNeedATokenWhereThereAreTokens) {
  const std::string asked = status("POST", "/v1/completions");
  const Ran closed = with_server("--data data --quiet", asked);
  EXPECT_TRUE(closed.out.starts_with("401\n")) << closed.out << closed.err;
  const Ran open = with_server("--data data --quiet --open-completions", asked);
  EXPECT_TRUE(open.out.starts_with("200\n")) << open.out << open.err;
}

TEST(Serve, KeepsTextsKnown) {
  const std::string server = " --server http://127.0.0.1:$port 2>&1\n";
  const Ran ran =
      with_server("--quiet",
                  "for i in 1 2 3 4 5 6 7 8; do echo -n 'key acorn = amber ; '; done > text\n"
                  "\"$SLUICE\" frozen add text --extra-key pages" +
                      server + "\"$SLUICE\" frozen list --extra-key pages" + server + "\"$SLUICE\" frozen remove 1" + server +
                      "\"$SLUICE\" frozen remove 1" + server + "printf '\\xff' | \"$SLUICE\" frozen add -" + server);
  EXPECT_EQ(count(ran.out, "address 127.0.0.1  pages"), 2) << ran.out << ran.err;
  EXPECT_EQ(count(ran.out, "1 is forgotten"), 1) << ran.out;
  EXPECT_EQ(count(ran.out, "there is no frozen text \"1\""), 1) << ran.out;
  EXPECT_EQ(count(ran.out, "it is not text in UTF-8"), 1) << ran.out;
}

TEST(Serve, AdministratorsAloneFreezeTexts) {
  const std::string ask =
      "ada=$(\"$SLUICE\" agent add ada --data data) bob=$(\"$SLUICE\" agent add bob --admin --data data)\n"
      "for i in 1 2 3 4 5 6 7 8; do echo -n 'key acorn = amber ; '; done > text\n"
      "for token in '' \"$ada\" \"$bob\"; do \"$SLUICE\" frozen add text --agent ada --token \"$token\" --server "
      "http://127.0.0.1:$port 2>&1; done\n";
  const Ran ran = with_server("--data data --quiet", ask);
  EXPECT_EQ(count(ran.out, "the server answers 401"), 1) << ran.out << ran.err;
  EXPECT_EQ(count(ran.out, "only administrators may do this"), 1) << ran.out;
  EXPECT_EQ(count(ran.out, "agent ada"), 1) << ran.out;
}

TEST(Serve, SaysWhereThereIsNothingForAgents) {
  const Ran ran = with_server("--quiet", "\"$SLUICE\" leaderboard --server http://127.0.0.1:$port 2>&1");
  EXPECT_NE(ran.out.find("sluice serve --data FOLDER"), std::string::npos) << ran.out << ran.err;
}

TEST(Serve, RefusesWhatItCannotServe) {
  const auto refused = [](const std::vector<std::string>& options, const std::string& message) {
    std::vector<std::string> arguments = {"serve", "--port", "0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Ran ran = run_sluice(arguments);
    EXPECT_EQ(ran.exit_code, 1) << ran.err;
    EXPECT_NE(ran.err.find(message), std::string::npos) << ran.err;
  };
  refused({"--model", "nowhere"}, "nowhere");
  refused({"--flow", "nothing"}, "there is no flow \"nothing\"");
  refused({"--flow", "quest,quest"}, "two flows are called \"quest\"");
  refused({"--host", "300.1.1.1"}, "cannot listen there");
  const sluice::testing::TemporaryDirectory directory;
  refused({"--host", "300.1.1.1", "--data", directory.file("new")}, "cannot listen there");
  EXPECT_FALSE(std::filesystem::exists(directory.file("new")));
  refused({"--port", "65536"}, "65536");
  refused({"--writes-per-minute", "nan"}, "nan");
  refused({"--reads-per-second", "-1"}, "-1");
  refused({"--data", ""}, "the folder's name is empty");
  refused({"--token-for-reading"}, "there are no tokens");
  refused({"--allow-host", "https://example.org"}, "is no host name");
  refused({"--allow-host", "example.org:8080"}, "is no host name");
  refused({"--allow-host", "*"}, "is no host name");
  refused({"--workers", "2"}, "--workers requires --data");
  refused({"--judge-seconds", "20"}, "--judge-seconds requires --data");
  refused({"--suite", "verify"}, "--suite requires --data");
  refused({"--final-model", "mini"}, "--final-model requires --data");
  refused({"--data", directory.file("new"), "--final-suite", "real"}, "--final-suite requires --final-model");
  refused({"--data", directory.file("new"), "--final-model", ""}, "the model's name is empty");
  refused({"--data", directory.file("new"), "--final-model", directory.file("none")}, "none");
  refused({"--data", directory.file("new"), "--final-model", SLUICE_SOURCE_DIR "/host/models/mini"},
          "the final model is the one that judges first");
  refused({"--open-completions"}, "open there anyway");
  refused({"--data", "data", "--token-for-reading", "--open-completions"}, "excludes");
}

}  // namespace
}  // namespace sluice::test
