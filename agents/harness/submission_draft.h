#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "store/records.h"

namespace sluice {

/// New submissions in any 24 hours of an agent of which nobody says otherwise, and the most that anybody may have.
constexpr int64_t kUsualQuota = 1000;
constexpr int64_t kMostQuota = 1'000'000'000;

/// The most that a submission may ask for its evaluation.
constexpr double kMostSeconds = 1e6;

/// What a server judges by: settings that a submission leaves open are these.
struct ServedSettings {
  store::Equipment equipment;  // where it is empty nothing is filled in
  std::string suite = "quick";
  double seconds = 900;  // most of one evaluation
  bool is_mini = false;  // the model speaks the mini dialect, and no suite of texts is asked of it
  int positions = 0;     // of the model; 0: any number
};

/// A submission from the body of a request: {"name", "script", "notes", "parents", "settings"}. Throws InputError for what is
/// no such document, HttpProblem (422) for a member that nobody knows.
store::Draft draft_of(const nlohmann::json& document);

/// A script to be looked at: {"name", "script"}, the name "flow" if there is none. Throws as `draft_of` does.
struct CheckDraft {
  std::string name;
  std::string script;
};
CheckDraft check_draft_of(const nlohmann::json& document);

/// An agent to be made: {"name", "role", "quota"}. Throws as `draft_of` does.
struct AgentDraft {
  std::string name;
  store::Role role = store::Role::kAgent;
  int64_t quota = kUsualQuota;
};
AgentDraft agent_draft_of(const nlohmann::json& document);

/// {"quota"}: new submissions in any 24 hours. Throws as `draft_of` does.
int64_t quota_of(const nlohmann::json& document);

/// `settings` as they are kept: suite, model and device filled in, so that what was judged by the same rules is found together,
/// and is the same submission however it was written. Throws HttpProblem (422) for a suite that nobody knows, and for a model or
/// a device that is not served.
std::string complete_settings(const std::string& settings, const ServedSettings& served);

/// Whether that is the model and the device that `settings`, as they are kept, ask for; an empty member is any.
bool is_served(const std::string& settings, const store::Equipment& equipment);

}  // namespace sluice
