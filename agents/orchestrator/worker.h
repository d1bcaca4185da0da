#pragma once

#include <string>

namespace sluice {

struct WorkerOptions {
  std::string model;  // its path
  std::string device = "cpu";
  int threads = 0;
  size_t cache_bytes = size_t{512} << 20;  // for what dense attention did, from job to job
  /// That judging a flow may take beyond the model, what is cached and the prompts; a flow that needs more ends with that
  /// verdict.
  size_t flow_bytes = size_t{1} << 30;
};

/// Judges the jobs that come in on descriptor `in`, one after the other, and writes messages to `out` (worker_messages.h), until
/// `in` ends. Scripts are traced in the sandbox, as everywhere; what they describe runs here.
/// Throws InputError where model or device are not there, or a line is no job.
void run_worker(const WorkerOptions& options, int in, int out);

}  // namespace sluice
