#pragma once

#include <string>
#include <vector>

#include "agents/evaluation/report.h"
#include "agents/evaluation/runner.h"
#include "agents/evaluation/suite.h"

namespace sluice {

/// Dense attention ("") or a flow, and what it generated for each job of some documents.
struct Answerer {
  std::string name;
  const std::vector<Generation>* generations = nullptr;
};

/// The questions of documents, with what each answered.
void append_questions(std::vector<AskedQuestion>& questions, const SuiteTask& task, const std::vector<JobDocument>& documents,
                      const std::vector<Answerer>& answerers);

}  // namespace sluice
