// What waits, runs and has just ended, as it happens.

import { get } from '../api';
import type { HarnessEvent, Page, Summary } from '../documents';
import { element, replace, scrollable, section, type Child } from '../dom';
import { durationText, isFinal, statusCell, timeCell, timeText, words } from '../format';
import { refreshOnEvents } from '../live';
import { submissionHash } from '../router';
import { heading, Loader, type View } from '../view';

const kMostListed = 200;
const kRecent = 20; // submissions that ended
const kLines = 100; // of the log

type Column = [title: string, cell: (row: Summary) => Child];

const kId: Column = ['#', ({ id }) => String(id)];
const kName: Column = ['Name', ({ id, name }) => element('a', { href: submissionHash(id), class: 'name', title: name }, name)];
const kAgent: Column = ['Agent', ({ agent }) => agent];

/** How far the evaluation of each submission has come, as events tell it. */
class Stages {
  readonly column: Column = ['At', ({ id }) => element('span', { 'data-at': id }, this.text(id))];
  private readonly told = new Map<number, string>();

  /** Also where it stands on the screen. */
  take({ submission, kind, data }: HarnessEvent, lists: HTMLElement): void {
    if (submission === null) return;
    if (kind === 'progress') this.told.set(submission, progressText(data));
    else this.told.delete(submission);
    const place = lists.querySelector(`[data-at="${submission}"]`);
    if (place) place.textContent = this.text(submission);
  }

  private text(id: number): string {
    return this.told.get(id) ?? '–';
  }
}

/** "long, salad 4096, 71%". */
function progressText({ stage, task, share }: Record<string, unknown>): string {
  const parts = [stage, task].filter((part) => typeof part === 'string' && part !== '');
  if (typeof share === 'number') parts.push(`${Math.floor(100 * share)}%`);
  return parts.join(', ');
}

/** Tells how long ago; kept up by `tick`. */
const since = (title: string): Column => [title, ({ updated }) => element('span', { 'data-since': updated })];

function tick(main: HTMLElement): void {
  for (const place of main.querySelectorAll<HTMLElement>('[data-since]')) {
    const seconds = (Date.now() - Date.parse(place.dataset.since ?? '')) / 1000;
    const text = durationText(seconds, 0);
    if (place.textContent !== text) place.textContent = text;
  }
}

function listOf(title: string, rows: Summary[], columns: Column[], empty: string): HTMLElement {
  const [head, ...rest] = columns.map(([name]) => element('th', { scope: 'col' }, name));
  const lines = rows.map((row) =>
    element('tr', { 'data-key': row.id }, ...columns.map(([, cell]) => element('td', {}, cell(row)))),
  );
  const table = element('table', {}, element('thead', {}, element('tr', {}, head, ...rest)), element('tbody', {}, ...lines));
  return section(
    `${title} (${rows.length})`,
    rows.length > 0 ? scrollable(title, table) : element('p', { class: 'empty' }, empty),
  );
}

/** What an event says beside its kind, in words. */
function said(event: HarnessEvent): string {
  const parts = ['status', 'reason', 'message'].map((key) => event.data?.[key]).filter((part) => typeof part === 'string');
  return parts.map((part) => words(part as string)).join(', ');
}

class Log {
  readonly element = element('ol', { class: 'log', 'aria-live': 'polite', 'aria-relevant': 'additions' });

  add(event: HarnessEvent): void {
    const more = said(event);
    const line = element(
      'li',
      {},
      element('time', { datetime: event.time }, timeText(event.time)),
      ' ',
      event.submission !== null && element('a', { href: submissionHash(event.submission) }, `#${event.submission}`),
      ` ${event.kind}${more ? `: ${more}` : ''}`,
    );
    this.element.prepend(line);
    while (this.element.children.length > kLines) this.element.lastElementChild?.remove();
  }
}

export const queueView: View = async ({ live, signal, main }) => {
  const loader = new Loader(signal);
  const log = new Log();
  const ahead = element('div');
  const behind = element('div');
  const lists = element(
    'div',
    { class: 'beside' },
    element('div', {}, ahead, section('What happened since this view was opened', log.element)),
    behind,
  );
  const stages = new Stages();
  const load = async (stop: AbortSignal) => {
    const list = (query: object) => get<Page>('/v1/submissions', { limit: kMostListed, ...query }, stop);
    const [running, queued, newest] = await Promise.all([list({ status: 'running' }), list({ status: 'queued' }), list({})]);
    const ended = newest.submissions
      .filter(({ status }) => isFinal(status))
      .sort((a, b) => b.updated.localeCompare(a.updated))
      .slice(0, kRecent);
    const focus = lists.contains(document.activeElement) ? document.activeElement?.getAttribute('href') : undefined;
    replace(
      ahead,
      listOf('Running', running.submissions, [kId, kName, kAgent, stages.column, since('For')], 'Nothing runs.'),
      listOf('Waiting', [...queued.submissions].reverse(), [kId, kName, kAgent, since('For')], 'Nothing waits.'),
    );
    replace(
      behind,
      listOf(
        'Ended last',
        ended,
        [kId, kName, kAgent, ['Status', ({ status }) => statusCell(status)], ['When', ({ updated }) => timeCell(updated)]],
        'Nothing has ended yet.',
      ),
    );
    if (focus) lists.querySelector<HTMLElement>(`a[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    tick(main);
  };

  main.append(heading('Queue'), loader.place, lists);
  live.onEvent(signal, (event) => {
    if (event.kind !== 'progress') log.add(event);
    stages.take(event, lists);
  });
  const timer = window.setInterval(() => tick(main), 1000);
  signal.addEventListener('abort', () => window.clearInterval(timer));
  await loader.run(load);
  refreshOnEvents(
    live,
    signal,
    ({ kind }) => kind !== 'progress',
    () => loader.run(load),
  );
};
