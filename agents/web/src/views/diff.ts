// What changed between a submission and its parent, or any other: the script side by side, settings and metrics.

import { get } from '../api';
import { highlighted } from '../code';
import type { Diff, DiffLine, Measured, Summary } from '../documents';
import { element, replace, scrollable, section } from '../dom';
import { changeClass, changeText, measuredCell, metricTitle } from '../format';
import { refreshOnEvents } from '../live';
import { keepQuery, submissionHash } from '../router';
import { DataTable } from '../table';
import { heading, idOf, Loader, type View } from '../view';

interface Pair {
  left?: DiffLine;
  right?: DiffLine;
}

/** Lines of a hunk side by side: removed ones beside the added ones that took their place. */
export function paired(lines: DiffLine[]): Pair[] {
  const pairs: Pair[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); ++index) {
      pairs.push({ left: removed[index], right: added[index] });
    }
    [removed, added] = [[], []];
  };
  for (const line of lines) {
    if (line.kind === 'removed') {
      if (added.length > 0) flush();
      removed.push(line);
    } else if (line.kind === 'added') {
      added.push(line);
    } else {
      flush();
      pairs.push({ left: line, right: line });
    }
  }
  flush();
  return pairs;
}

const kSigns = { context: ' ', added: '+', removed: '−' };
const kSaid = { context: '', added: 'added', removed: 'removed' };

function codeCell(line: DiffLine | undefined): HTMLElement {
  if (!line) return element('td', { class: 'blank' });
  const text = line.text.replace(/\n$/, '');
  return element(
    'td',
    { class: line.kind },
    line.kind !== 'context' && element('span', { class: 'hidden' }, `${kSaid[line.kind]}: `),
    element('code', {}, highlighted(text)),
  );
}

function numberCell(line: DiffLine | undefined, number: number | null | undefined): HTMLElement {
  return element('td', { class: `number ${line?.kind ?? 'blank'}` }, number ? String(number) : '');
}

function header(...titles: string[]): HTMLElement {
  return element('thead', {}, element('tr', {}, ...titles.map((title) => element('th', { scope: 'col' }, title))));
}

function splitTable(diff: Diff): HTMLElement {
  const rows = diff.hunks.flatMap(({ header: title, lines }) => [
    element('tr', { class: 'hunk' }, element('td', { colspan: 4 }, title)),
    ...paired(lines).map(({ left, right }) =>
      element('tr', {}, numberCell(left, left?.old), codeCell(left), numberCell(right, right?.new), codeCell(right)),
    ),
  ]);
  const from = diff.from ? `#${diff.from.id}` : 'nothing';
  return element('table', { class: 'diff split' }, header('Line', from, 'Line', `#${diff.to.id}`), element('tbody', {}, ...rows));
}

function unifiedTable(diff: Diff): HTMLElement {
  const rows = diff.hunks.flatMap(({ header: title, lines }) => [
    element('tr', { class: 'hunk' }, element('td', { colspan: 4 }, title)),
    ...lines.map((line) =>
      element(
        'tr',
        {},
        numberCell(line, line.old),
        numberCell(line, line.new),
        element('td', { class: line.kind, 'aria-hidden': 'true' }, kSigns[line.kind]),
        codeCell(line),
      ),
    ),
  ]);
  return element('table', { class: 'diff unified' }, header('Before', 'After', '±', 'Script'), element('tbody', {}, ...rows));
}

type MetricChange = Diff['metrics'][number];

function changeOf({ from, to }: MetricChange): number | undefined {
  return from === null || to === null ? undefined : to - from;
}

/** A side of a change, with its interval where the summary tells it: of a metric of the whole evaluation. */
function sideOf({ name, task }: MetricChange, value: number | null, summary: Summary | null): Measured | undefined {
  return value === null ? undefined : (!task && summary?.metrics[name]) || { value };
}

function metricTable(diff: Diff): HTMLElement {
  const table = new DataTable<MetricChange>({
    caption: 'Metrics before and after',
    rowKey: ({ name, task, tokens }) => `${name} ${task} ${tokens}`,
    empty: 'Neither has been measured.',
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
        cell: (row) => measuredCell(row.name, sideOf(row, row.from, diff.from)),
      },
      {
        key: 'to',
        title: `#${diff.to.id}`,
        numeric: true,
        value: ({ to }) => to,
        cell: (row) => measuredCell(row.name, sideOf(row, row.to, diff.to)),
      },
      {
        key: 'change',
        title: 'Change',
        numeric: true,
        value: changeOf,
        cell: (row) => {
          const change = changeOf(row);
          if (change === undefined) return '–';
          return element('span', { class: `change ${changeClass(row.name, change)}` }, changeText(row.name, change));
        },
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
    header('Setting', diff.from ? `#${diff.from.id}` : 'before', `#${diff.to.id}`),
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
  const loader = new Loader(signal);
  const place = element('div');

  const draw = (diff: Diff) => {
    const label = `Script of #${id} beside ${diff.from ? `#${diff.from.id}` : 'nothing'}`;
    const same = diff.hunks.length === 0;
    replace(
      place,
      element(
        'p',
        {},
        'From ',
        diff.from ? link(diff.from.id, diff.from.name) : 'nothing (it has no parent)',
        ' to ',
        link(diff.to.id, diff.to.name),
      ),
      section(
        'Script',
        same
          ? element('p', { class: 'empty' }, 'The scripts are the same.')
          : scrollable(label, unified.checked ? unifiedTable(diff) : splitTable(diff)),
      ),
      diff.settings.length > 0 && section('Settings', settingTable(diff)),
      section('Metrics', metricTable(diff)),
    );
  };
  let shown: Diff | undefined;
  const load = async (stop: AbortSignal) => {
    const other = from.value.trim() ? idOf(from.value.trim()) : undefined;
    const context = all.checked ? 'all' : undefined;
    shown = await get<Diff>(`/v1/submissions/${id}/diff`, { from: other, context }, stop);
    draw(shown);
  };
  const changed = async (event: Event) => {
    event.preventDefault();
    const view = unified.checked === narrow ? '' : unified.checked ? 'unified' : 'split';
    keepQuery({ from: from.value.trim(), context: all.checked ? 'all' : '', view });
    if (event.target === unified && shown) draw(shown);
    else await loader.run(load);
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
    place,
  );
  await loader.run(load);
  refreshOnEvents(
    live,
    signal,
    ({ submission, kind }) => kind === 'finished' && (submission === id || submission === shown?.from?.id),
    () => loader.run(load),
  );
};
