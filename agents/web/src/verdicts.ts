// What submissions were found to be, one after the other.

import type { Measured, Summary } from './documents';
import { isFinal, metricStyle } from './format';

export interface Verdict {
  submission: Summary;
  measured: Measured;
  /** Of those that had passed by then, whatever this one did; missing as long as none had. */
  best: number | undefined;
}

/** The verdicts for which a metric was measured, the oldest first. A submission that has ended was last changed by its verdict. */
export function verdictsOf(submissions: Summary[], metric: string): Verdict[] {
  const better = metricStyle(metric).better === 'lower' ? Math.min : Math.max;
  const judged = submissions
    .filter(({ status }) => isFinal(status) && status !== 'cancelled')
    .sort((a, b) => a.updated.localeCompare(b.updated));
  let best: number | undefined;
  return judged.flatMap((submission) => {
    const measured = submission.metrics[metric];
    if (!measured) return [];
    if (submission.status === 'passed') best = better(best ?? measured.value, measured.value);
    return [{ submission, measured, best }];
  });
}
