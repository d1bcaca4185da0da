// The first byte says what the rest is: the body of a submission, of a check, of a new agent, or of a quota, read as the routes
// read it.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agents/harness/submission_draft.h"
#include "agents/http/http_problem.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace {

using sluice::parse_json;

void read_submission(std::string_view text) {
  const sluice::ServedSettings served{"mini", "cpu", "quick"};
  const sluice::store::Draft draft = sluice::draft_of(parse_json(text, "submission"));
  const std::string settings = sluice::complete_settings(draft.settings, served);
  const nlohmann::json kept = nlohmann::json::parse(settings);
  if (kept.at("model") != "mini" || kept.at("device") != "cpu" || !kept.at("suite").is_string()) __builtin_trap();
  if (sluice::complete_settings(settings, served) != settings) __builtin_trap();  // or the same flow would be two submissions
}

void read(uint8_t kind, std::string_view text) {
  constexpr int kKinds = 4;
  switch (kind % kKinds) {
    case 0:
      return read_submission(text);
    case 1:
      sluice::check_draft_of(parse_json(text, "check"));
      return;
    case 2:
      if (sluice::agent_draft_of(parse_json(text, "agent")).quota < 0) __builtin_trap();
      return;
    default:
      if (sluice::quota_of(parse_json(text, "quota")) < 0) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read(data[0], {reinterpret_cast<const char*>(data + 1), size - 1});
  } catch (const sluice::HttpProblem& problem) {
    if (problem.status() != 422) __builtin_trap();
    sluice::json_text(problem.document());
  } catch (const sluice::InputError&) {  // what it is there to say
  }
  return 0;
}
