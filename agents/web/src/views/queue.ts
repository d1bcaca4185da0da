// What waits, runs and has just ended, as it happens.

import { allSubmissions, get } from '../api';
import type { HarnessEvent, Page, Summary } from '../documents';
import { element, replace, scrollable, section, tableHead, type Child } from '../dom';
import { durationText, isFinal, kStatuses, statusCell, timeCell, timeText, words } from '../format';
import { keepPlaces } from '../keep';
import { follow } from '../live';
import { Loader } from '../loader';
import { inTurn } from '../queue_order';
import { submissionHash } from '../router';
import { heading, type View } from '../view';

const kMostListed = 200;
const kMostEnded = 20;
const kLines = 100; // of the log

type Column = [title: string, cell: (row: Summary) => Child];

const kId: Column = ['#', ({ id }) => String(id)];
const kName: Column = [
  'Name',
  ({ id, name, final_of, settings }) =>
    element(
      'span',
      {},
      element('a', { href: submissionHash(id), class: 'name', title: name }, name),
      typeof final_of === 'number' && element('span', { class: 'muted' }, ` final of #${final_of} on ${settings.model ?? '–'}`),
    ),
];
const kAgent: Column = ['Agent', ({ agent }) => agent];
const kEndedColumns: Column[] = [
  kId,
  kName,
  kAgent,
  ['Status', ({ status }) => statusCell(status)],
  ['When', ({ updated }) => timeCell(updated)],
];

/** How far the evaluation of each submission has come, as events tell it. */
class Stages {
  readonly column: Column = ['At', ({ id }) => element('span', { 'data-at': id }, this.text(id))];
  private readonly told = new Map<number, string>();

  /** Also where it stands on the screen. */
  take({ submission, kind, data }: HarnessEvent, lists: HTMLElement): void {
    if (submission === null || kind === 'confirmation' || data?.of === 'confirmation') return;
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

interface List {
  title: string;
  columns: Column[];
  empty: string;
  /** What is to be known of their order. */
  note?: string;
}

const kEnded: List = { title: 'Ended last', columns: kEndedColumns, empty: 'Nothing has ended yet.' };
const kWaiting: List = {
  title: 'Waiting',
  columns: [kId, kName, kAgent, since('For')],
  empty: 'Nothing waits.',
  note: 'The next one first, as far as can be told: agents take turns, and of one agent the oldest goes first; finals come last.',
};

/** Of very many rows the first ones. */
function listOf({ title, columns, empty, note }: List, rows: Summary[]): HTMLElement {
  const listed = rows.slice(0, kMostListed);
  const named = `${title} (${listed.length < rows.length ? `first ${listed.length} of ${rows.length}` : rows.length})`;
  if (listed.length === 0) return section(named, element('p', { class: 'empty' }, empty));
  const lines = listed.map((row) =>
    element('tr', { 'data-key': row.id }, ...columns.map(([, cell]) => element('td', {}, cell(row)))),
  );
  const table = element('table', {}, tableHead(...columns.map(([name]) => name)), element('tbody', {}, ...lines));
  return section(named, note && element('p', { class: 'count' }, note), scrollable(title, table));
}

/** The submissions that ended last, whatever waits: each final status is asked for. */
async function lastEnded(stop: AbortSignal): Promise<Summary[]> {
  const pages = await Promise.all(
    kStatuses.filter(isFinal).map((status) => get<Page>('/v1/submissions', { status, finals: 'shown', limit: kMostEnded }, stop)),
  );
  return pages
    .flatMap(({ submissions }) => submissions)
    .sort((a, b) => b.updated.localeCompare(a.updated))
    .slice(0, kMostEnded);
}

/** What an event says beside its kind, in words. */
function said(event: HarnessEvent): string {
  const parts = ['state', 'status', 'reason', 'message'].map((key) => event.data?.[key]).filter((part) => typeof part === 'string');
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
  const inProgress = { title: 'Running', columns: [kId, kName, kAgent, stages.column, since('For')], empty: 'Nothing runs.' };
  const load = async (stop: AbortSignal) => {
    const [running, queued, ended] = await Promise.all([
      allSubmissions({ status: 'running', finals: 'shown' }, stop),
      allSubmissions({ status: 'queued', finals: 'shown' }, stop),
      lastEnded(stop),
    ]);
    keepPlaces(lists, () => {
      replace(ahead, listOf(inProgress, [...running].reverse()), listOf(kWaiting, inTurn(queued, running, ended)));
      replace(behind, listOf(kEnded, ended));
    });
    tick(main);
  };

  const loader = new Loader(signal, load);
  main.append(heading('Queue'), loader.place, lists);
  live.onEvent(signal, (event) => {
    if (event.kind !== 'progress') log.add(event);
    stages.take(event, lists);
  });
  const timer = window.setInterval(() => tick(main), 1000);
  signal.addEventListener('abort', () => window.clearInterval(timer));
  await follow(live, signal, loader, ({ kind }) => kind !== 'progress');
};
