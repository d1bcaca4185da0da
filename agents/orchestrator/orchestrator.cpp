#include "agents/orchestrator/orchestrator.h"

#include <utility>

namespace sluice {

Orchestrator::Orchestrator(std::string database, OrchestratorOptions options, std::optional<OrchestratorOptions> last)
    : database_(std::move(database)), options_(std::move(options)), last_(std::move(last)) {
  for (int i = 0; i < options_.workers; ++i) {
    threads_.emplace_back([this, i] { run_slot(i); });
  }
}

void Orchestrator::run_slot(int number) {
  Slot slot(number, database_, options_, signal_);
  if (!last_) return run_slots({&slot}, signal_, options_.poll_seconds);
  Slot last(number, database_, *last_, signal_, "final");
  run_slots({&slot, &last}, signal_, options_.poll_seconds);
}

Orchestrator::~Orchestrator() {
  signal_.stop();
  for (std::thread& thread : threads_) thread.join();
}

void Orchestrator::wake() { signal_.wake(); }

}  // namespace sluice
