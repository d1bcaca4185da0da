#pragma once

#include <chrono>
#include <functional>

#include "agents/client/harness_client.h"
#include "agents/evaluation/progress.h"

namespace sluice {

/// How somebody waits for a verdict.
struct Waiting {
  std::chrono::seconds most{0};
  std::function<bool()> interrupted = {};  // asked about once a second, if it is there
  Progress* progress = nullptr;            // told what the server tells of the evaluation; null: nobody
};

/// Whether the status of a submission (as documents have it) is one that does not change by itself.
bool is_final_status(const std::string& status);

/// The submission once it is final, or as it is when the waiting is over.
nlohmann::json wait_for_verdict(HarnessClient& client, int64_t id, const Waiting& waiting);

/// The same; where standard error is a terminal it tells how far the evaluation is.
nlohmann::json wait_on_terminal(HarnessClient& client, int64_t id, std::chrono::seconds most,
                                const std::function<bool()>& interrupted = {});

}  // namespace sluice
