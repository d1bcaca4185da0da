#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <vector>

#include "agents/repl/value_text.h"
#include "agents/traces/capture.h"
#include "kernels/reference/oracle.h"
#include "scripting/graph/graph.h"

namespace sluice::repl {

/// The user has asked for an evaluation to end.
class Interrupted final : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

/// Ends work that takes too long, or that the user interrupts.
class Watch {
 public:
  /// `interrupted` says whether the user has interrupted since it was last asked.
  Watch(double seconds, const std::function<bool()>& interrupted);
  /// Throws InputError or Interrupted.
  void check() const;

 private:
  double seconds_;
  std::chrono::steady_clock::time_point end_;
  const std::function<bool()>& interrupted_;
};

/// One KV head of one layer.
struct Place {
  int layer = 0;
  int head = 0;
};

/// The value of `node` at the newest step, by the float64 reference. States are what the steps before have saved, those of
/// `flow`, whose selections attention follows; the rows of the prompt are not known. `flow` may be null: the steps are those of
/// `graph`, which selects nothing. Throws InputError if the values would take more than 512 MiB or follow from attention that is
/// not known, and what `watch` throws.
oracle::NodeValue evaluate(const FlowGraph& graph, NodeId node, const FlowGraph* flow, const Capture& capture, const Place& place,
                           const Watch& watch);

/// The tensor of a node as it is shown.
ShownTensor shown(const FlowGraph& graph, NodeId node, const oracle::Tensor& tensor, int tokens);

/// Share of dense attention that falls on each page of `page` tokens: the mean of the query heads. They add up to 1.
std::vector<double> page_mass(const oracle::Row& row, int page);
/// What `selected` covers of it.
double mass_of(const std::vector<int32_t>& selected, const std::vector<double>& mass);

}  // namespace sluice::repl
