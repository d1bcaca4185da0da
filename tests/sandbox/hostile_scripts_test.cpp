// Each hostile script is refused within two seconds, in a process of at most 256 MB, and the process that asked goes on as
// before.

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "scripting/graph/text.h"
#include "tests/sandbox/hostile_scripts.h"
#include "tests/sandbox/sandbox_limits.h"

namespace sluice::test {
namespace {

int open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  int count = 0;
  while (readdir(folder.get()) != nullptr) ++count;
  return count;
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

/// Memory that the largest child so far has used, in bytes.
size_t largest_child() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<size_t>(usage.ru_maxrss) << 10;
}

TEST(HostileScripts, AreRefusedAndLeaveNothing) {
  TraceOptions options;
  options.seconds = 0.3;
  SandboxLimits limits;
  limits.seconds *= kSlowdown;
  const int descriptors = open_descriptors();
  for (const HostileScript& script : hostile_scripts()) {
    SCOPED_TRACE(script.name);
    EXPECT_EQ(refusal(script.source, limits, options).find("crashed"), std::string::npos);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_FALSE(has_children());
  if (!kIsSanitized) {
    EXPECT_LT(largest_child(), size_t{256} << 20);
  }
  EXPECT_NO_THROW(trace_sandboxed(kGoodFlow, "good.lua", {}, limits));
}

TEST(HostileScripts, AreRefusedWithinTheDefaultLimits) {
  const std::string message = refusal("while true do end", {});
  EXPECT_NE(message.find("too"), std::string::npos) << message;
}

TEST(HostileScripts, DieByTheParentsClockWhereTheirOwnIsBroken) {
  TraceOptions options;
  options.seconds = 1e9;
  options.instructions = INT64_MAX;
  SandboxLimits limits;
  limits.seconds = 0.3;
  EXPECT_EQ(refusal("while true do end", limits, options), "x.lua: the script did not end and was killed after 0.3 s");
}

TEST(HostileScripts, DieByTheKernelsMemoryLimitWhereLuasIsBroken) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers reserve more than any limit allows";
  TraceOptions options;
  options.memory = size_t{1} << 40;
  SandboxLimits limits;
  options.seconds = limits.seconds = 3;  // a busy machine takes more than one to give that much memory
  const std::string message = refusal(in_cache("local t = {} for i = 1, 1e9 do t[i] = i end"), limits, options);
  EXPECT_NE(message.find("too much memory"), std::string::npos) << message;
}

TEST(SandboxedTrace, GivesWhatTracingGives) {
  const TraceOptions options = {.head_dim = 32, .group = 2, .layers = 8};
  const FlowGraph here = trace(kGoodFlow, "good.lua", options);
  const FlowGraph there = trace_sandboxed(kGoodFlow, "good.lua", options, {});
  EXPECT_EQ(to_text(there), to_text(here));
  EXPECT_EQ(there.where, here.where);
  EXPECT_EQ(there.nodes.back().where, here.nodes.back().where);
}

TEST(SandboxedTrace, TheProgramIsItsOwnChild) {
  EXPECT_EQ(trace_sandboxed(kGoodFlow, "good.lua", {}, limits_with({SLUICE_PROGRAM})).name, "good");
}

TEST(SandboxedTrace, ThrowsWhatTracingThrows) {
  const SandboxLimits limits;
  for (const std::string source : {"local x = 1\nlocal y = x + nil\n", "return 1 +", "return topk()", "return 1",
                                   "return sluice.flow{nam = 'x'}", "while true do error('a\\0b') end"}) {
    try {
      trace(source, "x.lua");
      FAIL() << source;
    } catch (const FlowError& here) {
      try {
        trace_sandboxed(source, "x.lua", {}, limits);
        FAIL() << source;
      } catch (const FlowError& there) {
        EXPECT_STREQ(there.what(), here.what());
        EXPECT_EQ(there.message(), here.message());
        EXPECT_EQ(there.where(), here.where());
        EXPECT_EQ(there.hint(), here.hint());
      }
    }
  }
  try {
    trace_sandboxed(kGoodFlow, "x.lua", {.head_dim = 0}, limits);
    FAIL() << "accepted";
  } catch (const FlowError&) {
    FAIL() << "no flow is at fault";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("heads of 0 channels"), std::string::npos);
  }
}

TEST(SandboxedTrace, ManyThreadsMayTraceAtOnce) {
  const int descriptors = open_descriptors();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int j = 0; j < 5; ++j) {
        const std::string name = "flow" + std::to_string(i * 10 + j);
        const std::string source = "return sluice.flow{name = '" + name + "', layers = {rest = 'full'}}";
        EXPECT_EQ(trace_sandboxed(source, "x.lua", {}, {}).name, name);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_FALSE(has_children());
}

}  // namespace
}  // namespace sluice::test
