#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "agents/evaluation/suite.h"
#include "agents/tasks/rng.h"

// What an orchestrator and its workers say to each other: JSON documents, one a line, over pipes.

namespace sluice {

/// A flow to judge.
struct WorkerJob {
  std::string name;
  std::string script;
  std::string suite = "quick";  // a built-in one, or with `suite_text` what messages call it
  std::string suite_text;       // of a suite file; empty: the built-in one
  Seed seed;
  std::string model_digest = {};   // of the model that is to judge it (host/weights/model_digest.h); empty: whichever is there
  int factor = 1;                  // so many times the samples of the suite
  std::optional<Seed> kinds = {};  // of questions that are asked in place of the suite's (evaluation/holdout.h); none: the suite
  bool is_seed_kept = true;        // other jobs will have the seed, too: what dense attention does is kept for them

  /// The suite with its samples. Throws InputError for one that cannot be.
  Suite load() const;
};

/// The worker has its device and waits for jobs.
struct WorkerReady {
  std::string device;
  std::string description;
  std::string model;
};

/// How far a job is.
struct WorkerProgress {
  std::string stage;
  std::string task;
  double share = 0;  // of the work, 0 to 1
};

/// The job is done: a document of schema sluice.eval/1 with one flow.
struct WorkerReport {
  std::string report;
};

/// The job could not be judged, which says nothing about the flow.
struct WorkerFailure {
  std::string message;
  std::string hint;
  bool is_lack = false;  // of something that the machine may have again later
};

using WorkerMessage = std::variant<WorkerReady, WorkerProgress, WorkerReport, WorkerFailure>;

/// Longest line that either side reads.
inline constexpr size_t kMostMessageBytes = size_t{16} << 20;

/// One line each, without the line break.
std::string to_line(const WorkerJob& job);
std::string to_line(const WorkerMessage& message);
/// Throw InputError for a line that is none.
WorkerJob parse_job(std::string_view line);
WorkerMessage parse_message(std::string_view line);

}  // namespace sluice
