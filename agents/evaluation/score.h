#pragma once

#include <optional>
#include <string>

#include "agents/evaluation/report.h"

namespace sluice {

/// The number by which flows are ranked, in [0, 1]. What a language model that learned from real text thinks of a flow decides:
///
/// - its own answers, where it is the model that is asked: the accuracy;
/// - its recorded attention, where the mini is asked: (accuracy + 4 exp(-8 error)) / 5 with the error of the flow's output on
///   traces. The numbers were chosen on flows of tests/agreement (vortex and others), to rank as SmolLM2 does, and held
///   against those of fresh/, which were written afterwards.
///
/// A flow that reads more of the pages on traces than where it was timed has by so much less of the second part: what it costs
/// and what it keeps must be of one flow, whatever it knows traces by. One that does not run on traces, or could not be timed,
/// has nothing of it. Nothing without an answer that counts, and nothing of the mini alone where no traces were judged.
///
/// The interval is that of the accuracy (FlowReport::mean) and of the error, as independent estimates.
///
/// `dialect` is that of the report, "mini" or "english".
std::optional<FlowScore> score_of(const FlowReport& flow, const std::string& dialect);
/// Where traces have no say (suite reuse): the accuracy.
std::optional<FlowScore> accuracy_score(const FlowReport& flow);

}  // namespace sluice
