#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agents/client/harness_client.h"

namespace sluice::cli {

/// What every command that talks to a server takes.
struct ClientOptions {
  ServerAccess access = ServerAccess::from_environment();
  bool json_output = false;

  HarnessClient client() const { return HarnessClient(access); }
  /// Prints `document` if JSON is wanted, else `text`, which is made only then.
  template <typename Text>
  void print(const nlohmann::json& document, const Text& text) const {
    fmt::print("{}", json_output ? document.dump(2) + "\n" : text());
  }
};

/// --server and --token.
void add_access(CLI::App& command, ServerAccess& access);
/// --server, --token and --json.
void add_connection(CLI::App& command, ClientOptions& options);
/// The number of a submission.
void add_submission_id(CLI::App& command, int64_t& id);
inline constexpr int kDay = 86400;  // seconds

/// --wait [SECONDS], in seconds; alone, it means until the end.
void add_wait(CLI::App& command, int& seconds);

/// Filters of lists and leaderboards: query parameters by their names. Returns their options.
std::vector<CLI::Option*> add_filters(CLI::App& command, HarnessClient::Query& query);

/// Whoever waited learns by the exit status whether there is a verdict with measurements: throws CLI::RuntimeError (1) if not.
void check_judged(const nlohmann::json& submission);

/// The submission as `sluice show` prints it.
std::string shown_submission(HarnessClient& client, const nlohmann::json& submission);

}  // namespace sluice::cli
