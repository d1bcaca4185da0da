#pragma once

#include <string>
#include <vector>

#include "tests/store/folder.h"

namespace sluice::store::test {

/// A store with a study of ada's.
struct TestStudy : TestStore {
  static constexpr Time kHour = 3600LL * 1000000;
  static constexpr const char* kSettings = R"({"model":"mini","suite":"quick"})";

  explicit TestStudy(int most_tries = 3) : TestStore(most_tries), id(store.create_study("ada", {"study", "", kSettings}).id) {}

  static TrialDraft of(const std::string& flow, const std::string& parameters = "{}") {
    return {.submission = {}, .flow = draft(flow), .parameters = parameters};
  }
  /// Adds one and gives it.
  Trial add(const TrialDraft& trial, const std::string& agent = "ada") {
    return this->trial(store.add_trials(agent, id, {trial}).first);
  }
  Trial trial(int64_t number) { return store.trial(id, number).value(); }
  Lease claim() { return store.claim("w", kHour).value(); }
  ErrorKind kind_of(const std::vector<TrialDraft>& drafts, const std::string& key = {}) {
    return kind_thrown_by([&] { store.add_trials("ada", id, drafts, key); });
  }
  /// A submission with the settings of the study.
  SubmissionId submitted(const std::string& name) {
    Draft made = draft(name);
    made.settings = kSettings;
    return store.submit("ada", made).id;
  }

  StudyId id;
};

}  // namespace sluice::store::test
