#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "agents/client/harness_client.h"
#include "agents/evaluation/progress.h"

namespace sluice {

enum class WaitedFor : uint8_t { kVerdict, kConfirmation };

/// How somebody waits for a verdict.
struct Waiting {
  std::chrono::seconds most{0};
  std::function<bool()> interrupted = {};  // if it is there, asked several times a second, by one thread at a time
  Progress* progress = nullptr;            // told what the server tells of the evaluation; null: nobody
  WaitedFor what = WaitedFor::kVerdict;    // of a confirmation: until it has ended, however that may be
};

/// Whether the status of a submission (as documents have it) is one that does not change by itself.
bool is_final_status(const std::string& status);

/// The submission once it is final, or its confirmation is, or as it was last seen when the waiting is over. A server that is
/// busy, or is started anew, is asked again until then. Throws ServerError if it has nothing to say of the submission, or was out
/// of reach to the end.
nlohmann::json wait_for_verdict(HarnessClient& client, int64_t id, const Waiting& waiting);

/// The same; where standard error is a terminal it tells how far the evaluation is.
nlohmann::json wait_on_terminal(HarnessClient& client, int64_t id, std::chrono::seconds most,
                                const std::function<bool()>& interrupted = {}, WaitedFor what = WaitedFor::kVerdict);

}  // namespace sluice
