#include "agents/evaluation/suite_work.h"

namespace sluice {

double prefill_work(const SuiteTask& task) { return static_cast<double>(task.tokens) * task.samples / task.questions; }

double decode_work(const SuiteTask& task) { return static_cast<double>(task.tokens) * task.samples / 8; }

double speed_work(const Suite& suite, const SuiteTask& task) {
  return suite.speed_pairs == 0 || !task.is_timed ? 0 : static_cast<double>(task.tokens) * suite.speed_batch / 8;
}

double planned_work(const Suite& suite, size_t flows) {
  double work = 0;
  for (const SuiteStage& stage : suite.stages) {
    for (const SuiteTask& task : stage.tasks) {
      work += prefill_work(task) + static_cast<double>(flows + 1) * decode_work(task) +
              static_cast<double>(flows) * speed_work(suite, task);
    }
  }
  return work;
}

}  // namespace sluice
