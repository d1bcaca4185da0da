// What a submission stands for where it is compared: what was confirmed or, without that, what was judged.

import type { Confirmation, Measured, Summary } from './documents';
import { element } from './dom';
import { intervalText, metricNumber } from './format';

const isDone = (confirmation: Confirmation | null | undefined) => confirmation?.state === 'done';

/** Its last verdict was judged once more, and passed. */
export const isConfirmed = ({ confirmation }: Summary) => isDone(confirmation) && confirmation?.status === 'passed';
/** New questions take it from among those that passed. */
export const isRefuted = ({ confirmation }: Summary) => isDone(confirmation) && confirmation?.status !== 'passed';

export function standing(summary: Summary, metric: string): Measured | undefined {
  const confirmed = isConfirmed(summary) ? summary.confirmation?.metrics[metric] : undefined;
  return confirmed ?? summary.metrics[metric];
}

/** In a word, which says more than a colour. */
export function basisText(summary: Summary): string {
  const { confirmation, metrics } = summary;
  if (isConfirmed(summary)) return 'confirmed';
  if (isRefuted(summary)) return 'refuted';
  if (Object.keys(metrics).length === 0) return '';
  if (confirmation && !isDone(confirmation)) return `judged, confirmation ${confirmation.state}`;
  return 'judged';
}

export function basisCell(summary: Summary): Node {
  const text = basisText(summary);
  return element('span', { class: isConfirmed(summary) ? 'basis' : 'basis muted' }, text || '–');
}

/** "The judged score flattered the flow by 8.5 points (0.6–16.6)." */
export function flatteryText({ flattered }: Confirmation): string {
  if (!flattered) return '';
  const interval = intervalText('score', flattered);
  return `The judged score flattered the flow by ${metricNumber('score', flattered.value)} points${interval && ` (${interval})`}.`;
}
