#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "agents/evaluation/flow_script.h"
#include "agents/orchestrator/worker_process.h"
#include "host/weights/model_digest.h"
#include "scripting/base/error.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

std::chrono::steady_clock::time_point in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

auto soon() { return in(test::kIsSanitized ? 300s : 60s); }

/// As Linux counts them for RLIMIT_DATA.
rlim_t private_bytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  rlim_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

class Worker : public ::testing::Test {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }

  static WorkerJob job(const std::string& flow, const std::string& suite = "verify") {
    return {.name = flow, .script = read_flow(flow).source, .suite = suite, .suite_text = {}, .seed = Seed::parse("worker")};
  }

  /// The message that ends a job.
  WorkerMessage last(WorkerProcess& worker) {
    WorkerMessage message;
    while (worker.next(message, soon()) == WorkerProcess::Outcome::kMessage) {
      if (!std::holds_alternative<WorkerProgress>(message)) return message;
      ++progress_;
      EXPECT_GE(std::get<WorkerProgress>(message).share, 0);
    }
    return WorkerFailure{"the worker ended", {}};
  }

  /// A worker that is a shell script.
  std::unique_ptr<WorkerProcess> shell(const std::string& text) {
    return std::make_unique<WorkerProcess>("/bin/sh", std::vector<std::string>{"-c", text});
  }

  int progress_ = 0;
  testing::TemporaryDirectory directory_;
};

TEST_F(Worker, JudgesOneJobAfterTheOther) {
  WorkerProcess worker(SLUICE_PROGRAM, {"worker", "--threads", "2"});
  WorkerMessage message;
  ASSERT_EQ(worker.next(message, in(60s)), WorkerProcess::Outcome::kMessage);
  EXPECT_EQ(std::get<WorkerReady>(message).device, "cpu");
  const auto status = [&](const WorkerJob& job) {
    EXPECT_TRUE(worker.send(job, soon()));
    const auto report = nlohmann::json::parse(std::get<WorkerReport>(last(worker)).report);
    EXPECT_EQ(report["schema"], "sluice.eval/1");
    return report["flows"][0]["status"].get<std::string>();
  };
  EXPECT_EQ(status(job("quest")), "passed");
  WorkerJob broken = job("quest");
  broken.script = "return 1 +";
  EXPECT_EQ(status(broken), "rejected_static");
  WorkerJob small = job("random");
  small.suite = "small";
  small.suite_text = R"([{"task": "needle_multiquery", "tokens": 512, "samples": 8, "threshold": 0.9}])";
  progress_ = 0;
  EXPECT_EQ(status(small), "below_threshold");
  EXPECT_GE(progress_, 3);
  small.script = read_flow("full").source;
  EXPECT_EQ(status(small), "passed");
}

TEST_F(Worker, AsksTheHoldoutInPlaceOfTheSuite) {
  WorkerProcess worker(SLUICE_PROGRAM, {"worker", "--threads", "2"});
  ASSERT_TRUE(std::holds_alternative<WorkerReady>(last(worker)));
  const auto flow_of = [&](const WorkerJob& job) {
    EXPECT_TRUE(worker.send(job, soon()));
    return nlohmann::json::parse(std::get<WorkerReport>(last(worker)).report)["flows"][0];
  };
  WorkerJob held_out = job("quest");
  held_out.suite = "small";
  held_out.suite_text = R"([{"task": "needle_multiquery", "tokens": 1024, "samples": 32, "threshold": 0.9}])";
  held_out.kinds = Seed::parse("kinds");
  const auto flow = flow_of(held_out);
  EXPECT_EQ(flow["status"], "passed") << flow;
  ASSERT_TRUE(flow["mean"].is_object());
  EXPECT_GT(flow["mean"]["dense_accuracy"], 0.5);
  EXPECT_TRUE(flow["speedup"].is_null());
  EXPECT_TRUE(flow["traces"].is_null());
  for (const auto& stage : flow["stages"]) EXPECT_TRUE(stage["name"] == "verify" || stage["name"] == "holdout") << stage;
  EXPECT_GT(flow["tasks"].size(), 1U);
  for (const auto& task : flow["tasks"]) EXPECT_NE(task["tokens"], 1024);
  // What asks nothing has nothing to hold out.
  held_out.suite = "verify";
  held_out.suite_text.clear();
  const auto nothing = flow_of(held_out);
  EXPECT_EQ(nothing["status"], "passed");
  EXPECT_TRUE(nothing["mean"].is_null());
}

TEST_F(Worker, SaysWhyAJobCannotBe) {
  WorkerProcess worker(SLUICE_PROGRAM, {"worker", "--threads", "2"});
  ASSERT_TRUE(std::holds_alternative<WorkerReady>(last(worker)));
  WorkerJob unknown = job("quest", "/etc/passwd");
  ASSERT_TRUE(worker.send(unknown, soon()));
  const WorkerMessage message = last(worker);
  EXPECT_NE(std::get<WorkerFailure>(message).message.find("no suite"), std::string::npos);
  ASSERT_TRUE(worker.send(job("quest"), soon()));
  EXPECT_TRUE(std::holds_alternative<WorkerReport>(last(worker)));
}

TEST_F(Worker, SaysWhatItsMachineLacksAndLives) {
  if (test::kIsSanitized) GTEST_SKIP() << "no limit suits a sanitizer";
  const std::string file = directory_.file("pid");
  const auto worker = shell("echo $$ > '" + file + "'; exec '" SLUICE_PROGRAM "' worker --threads 2");
  ASSERT_TRUE(std::holds_alternative<WorkerReady>(last(*worker)));
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  const auto failure_with = [&](auto resource, rlim_t most) {
    rlimit before{};
    ::prlimit(pid, resource, nullptr, &before);
    const rlimit low{most, before.rlim_max};
    EXPECT_EQ(::prlimit(pid, resource, &low, nullptr), 0);
    EXPECT_TRUE(worker->send(job("quest"), soon()));
    const WorkerMessage message = last(*worker);
    ::prlimit(pid, resource, &before, nullptr);
    const auto* failure = std::get_if<WorkerFailure>(&message);
    return failure != nullptr ? *failure : WorkerFailure{"no failure", {}};
  };
  const WorkerFailure descriptors = failure_with(RLIMIT_NOFILE, 4);  // three streams, and one for its messages
  EXPECT_TRUE(descriptors.is_lack) << descriptors.message;
  EXPECT_NE(descriptors.message.find(std::strerror(EMFILE)), std::string::npos) << descriptors.message;
  for (const rlim_t more : {0, 1 << 20}) {  // not even the suite can be read, or not all of the model
    const WorkerFailure memory = failure_with(RLIMIT_DATA, private_bytes(pid) + more);
    EXPECT_TRUE(memory.is_lack) << memory.message;
    EXPECT_NE(memory.message.find("no memory is left for the model"), std::string::npos) << memory.message;
  }
  ASSERT_TRUE(worker->send(job("quest"), soon()));
  EXPECT_TRUE(std::holds_alternative<WorkerReport>(last(*worker)));
}

TEST_F(Worker, AModelThatIsGoneIsNoFaultOfTheFlow) {
  const std::filesystem::path model = directory_.file("model");
  std::filesystem::copy(SLUICE_SOURCE_DIR "/host/models/mini", model);
  WorkerProcess worker(SLUICE_PROGRAM, {"worker", "--threads", "2", "--model", model.string()});
  ASSERT_TRUE(std::holds_alternative<WorkerReady>(last(worker)));
  const std::filesystem::path weights = model / "model.safetensors";
  std::filesystem::rename(weights, directory_.file("away"));
  ASSERT_TRUE(worker.send(job("quest"), soon()));
  const WorkerMessage message = last(worker);
  const auto* failure = std::get_if<WorkerFailure>(&message);
  ASSERT_NE(failure, nullptr);
  EXPECT_TRUE(failure->is_lack) << failure->message;
  EXPECT_NE(failure->message.find("the model cannot be loaded"), std::string::npos) << failure->message;
  std::filesystem::rename(directory_.file("away"), weights);
  ASSERT_TRUE(worker.send(job("quest"), soon()));
  EXPECT_TRUE(std::holds_alternative<WorkerReport>(last(worker)));
}

TEST_F(Worker, AnotherModelInTheSameFolderJudgesNothing) {
  const std::filesystem::path model = directory_.file("model");
  std::filesystem::copy(SLUICE_SOURCE_DIR "/host/models/mini", model);
  WorkerJob wanted = job("quest");
  wanted.model_digest = model_digest(model.string());
  const std::filesystem::path weights = model / "model.safetensors";
  std::filesystem::copy_file(weights, directory_.file("other"));
  {
    std::fstream file(directory_.file("other"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-64, std::ios::end);
    file.write(std::string(64, '\0').data(), 64);
  }
  for (const bool is_other : {true, false}) {
    WorkerProcess worker(SLUICE_PROGRAM, {"worker", "--threads", "2", "--model", model.string()});
    ASSERT_TRUE(std::holds_alternative<WorkerReady>(last(worker)));
    if (is_other) {  // between its start and its first job
      std::filesystem::rename(weights, directory_.file("first"));
      std::filesystem::rename(directory_.file("other"), weights);
    }
    ASSERT_TRUE(worker.send(wanted, soon()));
    const WorkerMessage message = last(worker);
    if (!is_other) {
      EXPECT_TRUE(std::holds_alternative<WorkerReport>(message));
      continue;
    }
    const auto* failure = std::get_if<WorkerFailure>(&message);
    ASSERT_NE(failure, nullptr);
    EXPECT_TRUE(failure->is_lack);
    EXPECT_NE(failure->message.find("holds another model"), std::string::npos) << failure->message;
    std::filesystem::rename(directory_.file("first"), weights);
  }
}

TEST_F(Worker, ScriptsThatNeverEndAreRefused) {
  WorkerProcess worker(SLUICE_PROGRAM, {"worker", "--threads", "2"});
  ASSERT_TRUE(std::holds_alternative<WorkerReady>(last(worker)));
  WorkerJob endless = job("quest");
  endless.script = "while true do end";
  ASSERT_TRUE(worker.send(endless, soon()));
  const auto report = nlohmann::json::parse(std::get<WorkerReport>(last(worker)).report);
  EXPECT_EQ(report["flows"][0]["status"], "rejected_static");
}

TEST_F(Worker, DeadlinesAreKept) {
  const auto worker = shell("sleep 30");
  WorkerMessage message;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(worker->next(message, in(100ms)), WorkerProcess::Outcome::kDeadline);
  EXPECT_EQ(worker->kill(), "signal 9 (Killed)");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_FALSE(worker->send(job("quest"), soon()));
}

TEST_F(Worker, TakesItsChildrenAlong) {
  const std::string file = directory_.file("alive");
  auto worker = shell("(while true; do touch '" + file +
                      "'; sleep 0.05; done) & echo '{\"type\": \"failure\", "
                      "\"message\": \"m\", \"hint\": \"h\"}'; wait");
  WorkerMessage message;
  ASSERT_EQ(worker->next(message, in(10s)), WorkerProcess::Outcome::kMessage);
  worker.reset();
  std::this_thread::sleep_for(100ms);
  std::filesystem::remove(file);
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Worker, EndsOfAllKindsAreNoticed) {
  for (const auto& [script, ending] :
       std::vector<std::pair<std::string, std::string>>{{"exit 3", "exit status 3"},
                                                        {"kill -SEGV $$", "signal 11"},
                                                        {"echo nonsense; sleep 30", ""},
                                                        {"echo '{\"type\": \"ready\"}'; sleep 30", ""},
                                                        {"echo -n half; exit 0", "exit status 0"}}) {
    const auto worker = shell(script);
    WorkerMessage message;
    EXPECT_EQ(worker->next(message, in(10s)), WorkerProcess::Outcome::kEnded) << script;
    const std::string how = worker->kill();
    EXPECT_EQ(how.substr(0, ending.size()), ending) << script;
  }
}

TEST_F(Worker, AnEndlessLineEndsIt) {
  const auto worker = shell("yes | tr -d '\\n'");
  WorkerMessage message;
  EXPECT_EQ(worker->next(message, in(30s)), WorkerProcess::Outcome::kEnded);
}

TEST_F(Worker, SeesNoSecrets) {
  ::setenv("SLUICE_TEST_SECRET", "hidden", 1);
  const int inherited = ::fcntl(STDERR_FILENO, F_DUPFD, 57);  // without FD_CLOEXEC
  const std::string file = directory_.file("seen");
  const auto worker = shell("env > '" + file + "'; ls /proc/self/fd >> '" + file + "'; exit 0");
  WorkerMessage message;
  EXPECT_EQ(worker->next(message, in(10s)), WorkerProcess::Outcome::kEnded);
  ::unsetenv("SLUICE_TEST_SECRET");
  ::close(inherited);
  std::ifstream stream(file);
  const std::string seen{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(seen.find("hidden"), std::string::npos);
  EXPECT_EQ(seen.find("\n" + std::to_string(inherited) + "\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("PATH="), std::string::npos);
}

TEST_F(Worker, GetsVariablesOfItsOwn) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  const std::string file = directory_.file("seen");
  WorkerProcess worker("/bin/sh", {"-c", "env | grep -E '^CUDA_(VISIBLE|DEVICE)' | sort > '" + file + "'"},
                       {"CUDA_VISIBLE_DEVICES=1"});
  WorkerMessage message;
  EXPECT_EQ(worker.next(message, in(10s)), WorkerProcess::Outcome::kEnded);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("CUDA_DEVICE_ORDER");
  std::ifstream stream(file);
  const std::string seen{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(seen, "CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES=1\n");
}

TEST_F(Worker, OneThatDoesNotReadHoldsNobodyUp) {
  const auto worker = shell("sleep 60");
  WorkerJob large = job("quest");
  large.script = std::string(1 << 20, ' ');  // more than a pipe holds
  EXPECT_FALSE(worker->send(large, in(200ms)));
}

TEST(WorkerMessages, SurviveTheWay) {
  const WorkerJob job{.name = "n\"\n",
                      .script = "-- \xff\x01\nreturn 1",
                      .suite = "s",
                      .suite_text = "[\n]",
                      .seed = Seed::parse("x"),
                      .model_digest = "d",
                      .factor = 4,
                      .is_seed_kept = false};
  const std::string line = to_line(job);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const WorkerJob back = parse_job(line);
  EXPECT_EQ(back.name, job.name);
  EXPECT_EQ(back.script, "-- \xef\xbf\xbd\x01\nreturn 1") << "the tracer says what is wrong with it";
  EXPECT_EQ(back.suite_text, job.suite_text);
  EXPECT_EQ(back.seed, job.seed);
  EXPECT_EQ(back.factor, 4);
  EXPECT_FALSE(back.is_seed_kept);
  std::string too_many = line;
  too_many.replace(too_many.find("\"factor\":4"), 10, "\"factor\":0");
  EXPECT_THROW(parse_job(too_many), InputError);
  const auto progress = std::get<WorkerProgress>(parse_message(to_line(WorkerProgress{"short", "needle", 0.25})));
  EXPECT_EQ(progress.stage, "short");
  EXPECT_EQ(progress.share, 0.25);
  for (const char* bad : {"", "{}", "[]", "{\"type\": \"nothing\"}", "{\"type\": \"progress\", \"stage\": 1}"}) {
    EXPECT_THROW(parse_message(bad), InputError) << bad;
    EXPECT_THROW(parse_job(bad), InputError) << bad;
  }
}

}  // namespace
}  // namespace sluice
