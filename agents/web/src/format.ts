// Numbers, times and words as people read them.

import { element } from './dom';
import type { Measured, Paired } from './documents';
import { kConfirmedMetrics, kMetrics } from './metrics';

interface MetricStyle {
  title: string;
  unit: string;
  scale: number;
  digits: number;
  /** Values come with intervals: columns leave room for them. */
  interval?: boolean;
  /** Missing where neither is: of what was only measured beside, and of metrics that the page does not know. */
  better?: 'higher' | 'lower';
}

const kForms = {
  share: { unit: '%', scale: 100, digits: 1 },
  ratio: { unit: '× dense', scale: 1, digits: 2 },
  nats: { unit: 'nats a token', scale: 1, digits: 3 },
};
const kStyles: Record<string, MetricStyle> = Object.fromEntries(
  [...kMetrics, ...kConfirmedMetrics].map(({ name, form, ...style }) => [name, { ...kForms[form], ...style }]),
);

/** Metrics of a whole evaluation that have a column of their own. */
export const kMainMetrics = kMetrics.map(({ name }) => name);

export function metricStyle(name: string, unit = ''): MetricStyle {
  return kStyles[name] ?? { title: name.replaceAll('_', ' '), unit, scale: 1, digits: 3 };
}

export function metricTitle(name: string): string {
  const style = metricStyle(name);
  return style.unit ? `${style.title} (${style.unit})` : style.title;
}

/** Without its unit. */
export function metricNumber(name: string, value: number): string {
  const style = metricStyle(name);
  return (value * style.scale).toFixed(style.digits);
}

export function metricText(name: string, value: number, unit = ''): string {
  const style = metricStyle(name, unit);
  return `${metricNumber(name, value)}${style.unit ? ` ${style.unit}` : ''}`;
}

/** "90.1–94.0", or nothing where none was measured. */
export function intervalText(name: string, measured: Measured): string {
  const { low, high } = measured;
  if (typeof low !== 'number' || typeof high !== 'number') return '';
  return `${metricNumber(name, low)}–${metricNumber(name, high)}`;
}

/** "92.1 % [90.1–94.0]", or nothing where nothing was measured. */
export function measuredText(name: string, measured: Measured | undefined): string {
  if (!measured) return '';
  const interval = intervalText(name, measured);
  return `${metricText(name, measured.value)}${interval ? ` [${interval}]` : ''}`;
}

/** A value with its interval, aligned in columns of a table. */
export function measuredCell(name: string, measured: Measured | undefined): Node {
  const interval = measured ? intervalText(name, measured) : '';
  return element(
    'span',
    { class: measured ? 'measured' : 'measured muted' },
    measured ? metricNumber(name, measured.value) : '–',
    (interval || metricStyle(name).interval) && element('span', { class: 'interval' }, interval),
  );
}

/** "+1.3 %" for the change of a metric; a percentage changes by points. */
export function changeText(name: string, change: number, unit = ''): string {
  const style = metricStyle(name, unit);
  const number = metricNumber(name, Math.abs(change));
  const sign = Number(number) === 0 ? '±' : change > 0 ? '+' : '−';
  const of = style.unit === '%' ? ' points' : style.unit ? ` ${style.unit}` : '';
  return `${sign}${number}${of}`;
}

const hasInterval = ({ low, high }: Measured) => typeof low === 'number' && typeof high === 'number';

/**
 * Whether two values are known to differ by more than chance may: their intervals do not overlap. Metrics without intervals are
 * exact; of the others, a value without one may be anything.
 */
function differ(name: string, a: Measured, b: Measured): boolean {
  if (metricStyle(name).interval && !(hasInterval(a) && hasInterval(b))) return false;
  return (a.high ?? a.value) < (b.low ?? b.value) || (b.high ?? b.value) < (a.low ?? a.value);
}

/** Whether a change is for the better, the worse, or neither as far as can be seen. */
export function changeClass(name: string, from: Measured, to: Measured): 'better' | 'worse' | 'same' {
  const { better } = metricStyle(name);
  const change = to.value - from.value;
  if (!better || !differ(name, from, to) || Number(metricNumber(name, Math.abs(change))) === 0) return 'same';
  return change > 0 === (better === 'higher') ? 'better' : 'worse';
}

/** Which of several values are the best: all that cannot be told from the very best; none where that is each of them. */
export function areBest(name: string, values: (Measured | undefined)[]): boolean[] {
  const { better } = metricStyle(name);
  const measured = values.filter((one) => one !== undefined);
  const [first, ...rest] = measured;
  if (!better || !first) return values.map(() => false);
  const very_best = rest.reduce((a, b) => ((better === 'higher') === b.value > a.value ? b : a), first);
  const is_contest = measured.some((one) => differ(name, one, very_best));
  return values.map((one) => is_contest && one !== undefined && !differ(name, one, very_best));
}

const two = (number: number) => String(number).padStart(2, '0');

/** "+3.1 points of accuracy (95% −1.0 to +7.2), p = 0.04". */
export function pairedText({ difference, low, high, p_value }: Paired): string {
  const points = (share: number) => `${share < 0 ? '−' : '+'}${Math.abs(100 * share).toFixed(1)}`;
  return `${points(difference)} points of accuracy (95% ${points(low)} to ${points(high)}), p = ${Number(p_value.toPrecision(2))}`;
}

/** "2026-11-21 12:05:09" in the reader's time zone. */
export function timeText(time: string | number): string {
  const date = new Date(time);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function timeCell(time: string | null | undefined): Node {
  if (!time) return element('span', { class: 'muted' }, '–');
  return element('time', { datetime: time }, timeText(time));
}

/** "4.2 s", "3 min 10 s", "2 h 5 min"; `digits` are those of short times. */
export function durationText(seconds: number, digits = 1): string {
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(digits)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

export const kStatuses = [
  'queued',
  'running',
  'passed',
  'rejected_static',
  'incorrect_numerical',
  'below_threshold',
  'timeout',
  'runtime_error',
  'cancelled',
];

export function isFinal(status: string): boolean {
  return status !== 'queued' && status !== 'running';
}

export function words(name: string): string {
  return name.replaceAll('_', ' ');
}

/** The word of a status, with a mark whose shape and colour say the same. */
export function statusCell(status: string): Node {
  return element('span', { class: `status ${status}` }, words(status));
}
