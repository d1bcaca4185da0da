// What changed between a submission and its parent, or any other: the script side by side, settings and metrics.

import { get, type Query } from '../api';
import { highlightedLines } from '../code';
import type { Diff, Measured, Metric, Submission } from '../documents';
import { element, replace, section, tableHead, type Child } from '../dom';
import { changeClass, changeText, measuredCell, metricTitle, pairedText } from '../format';
import { keepPlaces } from '../keep';
import { follow } from '../live';
import { Loader } from '../loader';
import { MixedNotice } from '../mixed_settings';
import { keepQuery, submissionHash } from '../router';
import { DataTable, unsorted, type TableState } from '../table';
import { heading, idOf, type View } from '../view';
import { scriptSection, type Scripts } from './script_diff';

/** A diff, and what it does not say: both scripts whole, and the intervals of what was measured. */
interface Shown {
  diff: Diff;
  scripts: Scripts;
  from: Submission | undefined;
  to: Submission;
}

type MetricChange = Diff['metrics'][number];

function changeOf({ from, to }: MetricChange): number | undefined {
  return from === null || to === null ? undefined : to - from;
}

/** A side of a change, with its interval as the evaluation tells it. */
function sideOf({ name, task, tokens }: MetricChange, value: number | null, of: Submission | undefined): Measured | undefined {
  if (value === null) return undefined;
  const same = (other: Metric) => other.name === name && (other.task ?? '') === (task ?? '') && other.tokens === tokens;
  return of?.evaluation?.metrics.find(same) ?? { value };
}

function changeCell(row: MetricChange, { from, to }: Shown): Child {
  const change = changeOf(row);
  const [before, after] = [sideOf(row, row.from, from), sideOf(row, row.to, to)];
  if (change === undefined || !before || !after) return '–';
  return element('span', { class: `change ${changeClass(row.name, before, after)}` }, changeText(row.name, change));
}

function metricTable(shown: Shown, state: TableState): HTMLElement {
  const { diff, from, to } = shown;
  const table = new DataTable<MetricChange>({
    caption: 'Metrics before and after',
    rowKey: ({ name, task, tokens }) => `${name} ${task} ${tokens}`,
    empty: 'Neither has been measured.',
    state,
    columns: [
      {
        key: 'name',
        title: 'Metric',
        heads: true,
        value: ({ name }) => name,
        cell: ({ name }) => metricTitle(name),
      },
      {
        key: 'task',
        title: 'Task',
        value: ({ task }) => task,
        cell: ({ task, tokens }) => (task ? `${task}${tokens ? `, ${tokens} tokens` : ''}` : 'all'),
      },
      {
        key: 'from',
        title: diff.from ? `#${diff.from.id}` : 'before',
        numeric: true,
        value: ({ from }) => from,
        cell: (row) => measuredCell(row.name, sideOf(row, row.from, from)),
      },
      {
        key: 'to',
        title: `#${diff.to.id}`,
        numeric: true,
        value: ({ to }) => to,
        cell: (row) => measuredCell(row.name, sideOf(row, row.to, to)),
      },
      {
        key: 'change',
        title: 'Change',
        numeric: true,
        value: changeOf,
        cell: (row) => changeCell(row, shown),
      },
    ],
  });
  table.show(diff.metrics);
  return table.element;
}

function settingTable(diff: Diff): HTMLElement {
  const text = (value: unknown) =>
    value === null || value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value);
  return element(
    'table',
    {},
    tableHead('Setting', diff.from ? `#${diff.from.id}` : 'before', `#${diff.to.id}`),
    element(
      'tbody',
      {},
      ...diff.settings.map(({ key, from, to }) =>
        element('tr', {}, element('th', { scope: 'row' }, key), element('td', {}, text(from)), element('td', {}, text(to))),
      ),
    ),
  );
}

const link = (id: number, name: string) => element('a', { href: submissionHash(id), class: 'name' }, `#${id} ${name}`);

async function loadShown(id: number, query: Query, stop: AbortSignal): Promise<Shown> {
  const submission = (of: number) => get<Submission>(`/v1/submissions/${of}`, {}, stop);
  const [diff, to] = await Promise.all([get<Diff>(`/v1/submissions/${id}/diff`, query, stop), submission(id)]);
  const from = diff.from ? await submission(diff.from.id) : undefined;
  return { diff, from, to, scripts: { old: highlightedLines(from?.script ?? ''), new: highlightedLines(to.script) } };
}

/** What the view shows: sides, scripts, settings, metrics. */
function panels(shown: Shown, isUnified: boolean, tableState: TableState): Child[] {
  const { diff, scripts } = shown;
  return [
    element(
      'p',
      {},
      'From ',
      diff.from ? link(diff.from.id, diff.from.name) : 'nothing (it has no parent)',
      ' to ',
      link(diff.to.id, diff.to.name),
    ),
    scriptSection(diff, scripts, isUnified),
    diff.settings.length > 0 && section('Settings', settingTable(diff)),
    section(
      'Metrics',
      diff.paired && element('p', { class: 'paired' }, `On the same questions: ${pairedText(diff.paired)}.`),
      metricTable(shown, tableState),
    ),
  ];
}

export const diffView: View = async ({ route, live, signal, main }) => {
  const id = idOf(route.path[1]);
  const { query } = route;
  const from = element('input', {
    type: 'text',
    name: 'from',
    inputmode: 'numeric',
    size: 8,
    maxlength: 16,
    value: query.get('from') ?? '',
    placeholder: 'parent',
  });
  const all = element('input', { type: 'checkbox', name: 'context' });
  all.checked = query.get('context') === 'all';
  const unified = element('input', { type: 'checkbox', name: 'unified' });
  const narrow = window.matchMedia('(max-width: 50rem)').matches;
  unified.checked = (query.get('view') ?? (narrow ? 'unified' : 'split')) === 'unified';
  const mixed = new MixedNotice();
  const place = element('div');
  const tableState = unsorted();

  const draw = (found: Shown) => {
    mixed.show(found.from ? [found.from, found.to] : [found.to]);
    keepPlaces(place, () => replace(place, ...panels(found, unified.checked, tableState)));
  };
  let shown: Shown | undefined;
  const load = async (stop: AbortSignal) => {
    const other = from.value.trim() ? idOf(from.value.trim()) : undefined;
    shown = await loadShown(id, { from: other, context: all.checked ? 'all' : undefined }, stop);
    draw(shown);
  };
  const loader = new Loader(signal, load);
  const changed = async (event: Event) => {
    event.preventDefault();
    const view = unified.checked === narrow ? '' : unified.checked ? 'unified' : 'split';
    keepQuery({ from: from.value.trim(), context: all.checked ? 'all' : '', view });
    if (event.target === unified && shown) draw(shown);
    else await loader.run();
  };
  main.append(
    heading(`Changes of #${id}`),
    element(
      'form',
      { class: 'filters', 'aria-label': 'What is compared', onsubmit: changed, onchange: changed },
      element('label', {}, 'against #', from),
      element('label', { class: 'check' }, all, 'all lines'),
      element('label', { class: 'check' }, unified, 'one column'),
      element('button', {}, 'Show'),
    ),
    loader.place,
    mixed.element,
    place,
  );
  await follow(
    live,
    signal,
    loader,
    ({ submission, kind }) => kind === 'finished' && (submission === id || submission === shown?.from?.id),
  );
};
