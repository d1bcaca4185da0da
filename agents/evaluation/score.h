#pragma once

#include <optional>
#include <string>

#include "agents/evaluation/report.h"

namespace sluice {

/// The number by which flows are ranked, in [0, 1]. What a language model that learned from real text thinks of a flow decides:
///
/// - its own answers, where it is the model that is asked: the accuracy;
/// - its recorded attention, where the mini is asked: (accuracy + 4 exp(-8 error)) / 5 with the error of the flow's output on
///   traces. The numbers were chosen on the flows of tests/agreement/vortex, to rank as SmolLM2 does, and held against others.
///
/// A flow that does not run on traces has shown nothing there: its second part is 0. Nothing without an answer that counts, and
/// nothing of the mini alone where no traces were judged.
///
/// `dialect` is that of the report, "mini" or "english".
std::optional<double> score_of(const FlowReport& flow, const std::string& dialect);

}  // namespace sluice
