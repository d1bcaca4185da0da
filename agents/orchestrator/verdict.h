#pragma once

#include <string>

#include "store/records.h"

namespace sluice {

/// What a report of schema sluice.eval/1 with one flow means for the store: status, stages, metrics, and the report itself as an
/// artifact, without the seed, which other submissions are judged by as well, and without the server's folders. Metrics are those
/// of agents/evaluation/metric_table.h, of the whole evaluation and, as far as they are told, of each task and length. Throws
/// InputError for a document that is none, and where not everything could be measured or the flow not even be loaded, through no
/// fault of its own: such a report says nothing that another could be compared with.
store::Verdict verdict_of(const std::string& report);

/// Adds to a verdict what a report of the holdout (evaluation/holdout.h) says of the flow: a stage and a metric, and nothing of
/// what was asked. Where the flow does not come to its end there the verdict is that, whatever it was. Throws as `verdict_of`.
void add_holdout(store::Verdict& verdict, const std::string& report);

/// What a worker's verdict says as a confirmation: its intervals are as wide as the number of tries makes them
/// (evaluation/statistics.h), by the form of each metric. Those in stages and in the report stay at 95 %. One that ended by an
/// error, which may be asked for again, says nothing of what was measured: nobody is to choose among several draws.
store::Verdict confirmed_verdict(store::Verdict verdict, const store::ConfirmationJob& job);

/// `text` as the store takes it: what is no UTF-8, or NUL, is replaced.
std::string utf8_text(const std::string& text);

/// A flow that did not even trace or compile.
store::Verdict rejected_verdict(const std::string& message, const std::string& hint);

/// A flow whose time was over in `stage`.
store::Verdict timeout_verdict(double seconds, const std::string& stage);

}  // namespace sluice
