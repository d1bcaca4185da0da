#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scripting/graph/pattern_report.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// What decides the bytes of a decode step's attention beside the plan.
struct Workload {
  std::string model;  // as the report calls it
  int layers = 1;
  int kv_heads = 1;
  int64_t tokens = 0;  // in the cache of each request
  int64_t batch = 1;
  std::string device = "cpu";  // or cuda: also how a GPU runs the plan
  double bandwidth = 0;        // bytes a second
};

/// Copy bandwidth of two channels of desktop memory, and of one H200, in bytes a second; `sluice bench` measures the machine at
/// hand.
double usual_bandwidth(const std::string& device);

struct PlanReport {
  std::string text;
  std::vector<PatternFigures> patterns = {};  // of the flow, for so many tokens
  std::string refusal = {};                   // by the device, as the text says too; empty: it takes the plan
  std::string hint = {};
};

/// Graph, fused steps and passes of a compilation, and bytes and time of each step at the roofline.
PlanReport plan_report(const Compilation& compilation, const Workload& workload);

}  // namespace sluice
