#pragma once

#include <nlohmann/json.hpp>
#include <string>

// JSON schemas of what the API takes and gives, for the OpenAPI document. Objects are closed: what they do not name is not there.

namespace sluice::schemas {

nlohmann::json text();
nlohmann::json integer();
nlohmann::json positive();
nlohmann::json submission_id();

/// {`member`: [`item`, ...]}.
nlohmann::json list(const std::string& member, const nlohmann::json& item);

// What is handed in

nlohmann::json draft();
nlohmann::json check_draft();
nlohmann::json study_draft();
nlohmann::json study_state_draft();
/// One trial, or a list of them.
nlohmann::json trial_drafts();
nlohmann::json told_draft();
nlohmann::json agent_draft();
nlohmann::json quota_draft();

// What is told

nlohmann::json summary();
/// A submission as writes answer it; `with_is_new`: of POST /v1/submissions.
nlohmann::json submission(bool with_is_new = false);
/// With its evaluation.
nlohmann::json judged_submission();
nlohmann::json evaluation();
/// With its evaluation, or the last attempt at it.
nlohmann::json judged_confirmation();
nlohmann::json page();
/// A list, the cursor of what follows, and on the first page how many there are.
nlohmann::json page_of(const std::string& member, const nlohmann::json& item);
/// `with_is_new`: of POST /v1/studies.
nlohmann::json study(bool with_is_new = false);
nlohmann::json trial();
/// Nodes, how many there are in all, and the cursor of the next page.
nlohmann::json relatives();
/// A list that may be a part, and how many entries there are in all.
nlohmann::json counted(nlohmann::json list);
nlohmann::json diff();
nlohmann::json ranked();
nlohmann::json front_point();
nlohmann::json history_point();
nlohmann::json finals();
nlohmann::json checked();
nlohmann::json operators();
nlohmann::json flows();
nlohmann::json suites();
nlohmann::json agent();
nlohmann::json new_agent();
nlohmann::json new_token();
nlohmann::json quota();
nlohmann::json me();

}  // namespace sluice::schemas
