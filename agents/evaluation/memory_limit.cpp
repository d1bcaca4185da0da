#include "agents/evaluation/memory_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "agents/evaluation/prefilled.h"
#include "scripting/base/error.h"
#include "scripting/base/freed_memory.h"

namespace sluice {
namespace {

/// Private memory that can be written, stacks included, as Linux counts it for RLIMIT_DATA.
size_t private_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  size_t shared = 0;
  size_t text = 0;
  size_t library = 0;
  size_t data = 0;
  if (!(file >> size >> resident >> shared >> text >> library >> data)) throw InternalError("/proc/self/statm cannot be read");
  return data * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void MemoryLimit::allow(size_t more) {
  give_back_freed_memory();
  const size_t now = private_bytes();
  if (!base_) base_ = now;
  const size_t base = std::clamp(now, *base_, *base_ + more / 4);
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, base + more);
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) throw InternalError(fmt::format("setrlimit: {}", std::strerror(errno)));
}

std::string memory_ran_out() {
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return "memory ran out";
  return fmt::format("memory ran out: the flow needs more than the limit of {} MiB allows, model and prompts included",
                     limit.rlim_cur >> 20);
}

size_t memory_of_batches(const Suite& suite, const ModelConfig& config) {
  // In units of K and V of a batch in bf16: two are snapshots in float32, one dense attention's pool, two a flow's in float32.
  constexpr size_t kCopies = 5;
  size_t most = 0;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      const int tokens = task.is_problem_set() ? std::max(config.max_positions, task.max_tokens) : task.tokens;
      const size_t token = size_t{2} * config.layers * config.kv_heads * config.head_dim * size_of(DataType::kBF16);
      most = std::max(most, token * tokens * prompts_together(config, tokens));
    }
  }
  return kCopies * most;
}

}  // namespace sluice
