#include "agents/orchestrator/orchestrator.h"

#include <utility>

namespace sluice {

Orchestrator::Orchestrator(std::string database, OrchestratorOptions options)
    : database_(std::move(database)), options_(std::move(options)) {
  for (int i = 0; i < options_.workers; ++i) {
    threads_.emplace_back([this, i] { Slot(i, database_, options_, signal_).run(); });
  }
}

Orchestrator::~Orchestrator() {
  signal_.stop();
  for (std::thread& thread : threads_) thread.join();
}

void Orchestrator::wake() { signal_.wake(); }

}  // namespace sluice
