// Two to six submissions beside each other: everything, or only what differs.

import { get } from '../api';
import type { Diff, Metric, Paired, Submission } from '../documents';
import { element, replace, scrollable, section, type Child } from '../dom';
import { areBest, measuredCell, metricNumber, metricStyle, pairedText, statusCell, timeText, words } from '../format';
import { keepPlaces } from '../keep';
import { follow } from '../live';
import { Loader } from '../loader';
import { MixedNotice } from '../mixed_settings';
import { hashOf, keepQuery, submissionHash } from '../router';
import { heading, idOf, type View } from '../view';

const kMost = 6;

interface Row {
  group: string;
  title: string;
  cells: { text: string; shown?: Node; is_best?: boolean }[];
}

function textRow(group: string, title: string, submissions: Submission[], read: (submission: Submission) => unknown): Row {
  const cells = submissions.map((submission) => {
    const value = read(submission);
    return {
      text:
        value === undefined || value === null || value === '' ? '–' : typeof value === 'string' ? value : JSON.stringify(value),
    };
  });
  return { group, title, cells };
}

function generalRows(submissions: Submission[]): Row[] {
  return [
    textRow('General', 'Agent', submissions, ({ agent }) => agent),
    {
      ...textRow('General', 'Status', submissions, ({ status }) => status),
      cells: submissions.map(({ status }) => ({ text: status, shown: statusCell(status) })),
    },
    textRow('General', 'Handed in', submissions, ({ created }) => timeText(created)),
    textRow('General', 'Parents', submissions, ({ parents }) => parents.map((id) => `#${id}`).join(', ')),
    textRow('General', 'Lines of script', submissions, ({ script }) => script.trimEnd().split('\n').length),
    textRow('General', 'Notes', submissions, ({ notes }) => notes),
    textRow('General', 'Message', submissions, ({ evaluation }) => evaluation?.message),
  ];
}

function settingRows(submissions: Submission[]): Row[] {
  const keys = [...new Set(submissions.flatMap(({ settings }) => Object.keys(settings)))].sort();
  return keys.map((key) => textRow('Settings', words(key), submissions, ({ settings }) => settings[key]));
}

function stageRows(submissions: Submission[]): Row[] {
  const stagesOf = (submission: Submission) => submission.evaluation?.stages ?? [];
  const names = [...new Set(submissions.flatMap((submission) => stagesOf(submission).map(({ stage }) => stage)))];
  return names.map((name) => ({
    group: 'Stages',
    title: name,
    cells: submissions.map((submission) => {
      const status = stagesOf(submission).find(({ stage }) => stage === name)?.status;
      return status
        ? { text: status, shown: element('span', { class: `status stage-${status}` }, status) }
        : { text: 'not reached' };
    }),
  }));
}

const keyOf = ({ name, task, tokens }: Metric) => JSON.stringify([name, task ?? '', tokens ?? 0]);

function metricRow(metric: Metric, submissions: Submission[]): Row {
  const { name, task, tokens } = metric;
  const style = metricStyle(name, metric.unit);
  const found = submissions.map(({ evaluation }) => evaluation?.metrics?.find((other) => keyOf(other) === keyOf(metric)));
  const best = areBest(name, found);
  return {
    group: task ? 'Metrics by task' : 'Metrics',
    title: `${style.title}${task ? `, ${task}` : ''}${tokens ? `, ${tokens} tokens` : ''}${style.unit ? ` (${style.unit})` : ''}`,
    cells: found.map((one, index) => {
      if (!one) return { text: '–' };
      return { text: metricNumber(name, one.value), shown: measuredCell(name, one), is_best: best[index] };
    }),
  };
}

function metricRows(submissions: Submission[]): Row[] {
  const metrics = new Map<string, Metric>();
  for (const { evaluation } of submissions) {
    for (const metric of evaluation?.metrics ?? []) if (!metrics.has(keyOf(metric))) metrics.set(keyOf(metric), metric);
  }
  const all = [...metrics.values()];
  return [...all.filter(({ task }) => !task), ...all.filter(({ task }) => task)].map((metric) => metricRow(metric, submissions));
}

/** Accuracy of the others beside the first one's, question by question; nothing where none of them was asked the same. */
function pairedRows(paired: (Paired | null)[]): Row[] {
  if (paired.every((one) => one === null)) return [];
  const [first, ...others] = paired.map((one) => ({ text: one ? pairedText(one) : '–' }));
  return [{ group: 'Metrics', title: 'On the same questions', cells: [{ ...first, text: 'beside this one' }, ...others] }];
}

const differs = ({ cells }: Row) => new Set(cells.map(({ text }) => text)).size > 1;

function tableOf(submissions: Submission[], rows: Row[]): HTMLElement {
  const body: HTMLElement[] = [];
  for (const group of new Set(rows.map((row) => row.group))) {
    const title = element('th', { scope: 'rowgroup', colspan: submissions.length + 1 }, group);
    const lines = rows
      .filter((row) => row.group === group)
      .map(({ title: name, cells }) =>
        element(
          'tr',
          {},
          element('th', { scope: 'row' }, name),
          ...cells.map(({ text, shown, is_best }) =>
            element('td', {}, shown ?? text, is_best && element('span', { class: 'best' }, ' best')),
          ),
        ),
      );
    body.push(element('tbody', {}, element('tr', { class: 'group' }, title), ...lines));
  }
  const heads = submissions.map(({ id, name }) =>
    element('th', { scope: 'col' }, element('a', { href: submissionHash(id), class: 'name', title: name }, `#${id} ${name}`)),
  );
  return element(
    'table',
    { class: 'compare' },
    element('caption', { class: 'hidden' }, 'Submissions beside each other'),
    element('thead', {}, element('tr', {}, element('td'), ...heads)),
    ...body,
  );
}

function diffLinks(submissions: Submission[]): Child {
  const [first, ...others] = submissions;
  return element(
    'p',
    {},
    'Scripts: ',
    ...others.flatMap(({ id }, index) => [
      index > 0 && ' · ',
      element('a', { href: hashOf(['submissions', id, 'diff'], { from: first?.id }) }, `#${first?.id} → #${id}`),
    ]),
  );
}

function comparison(submissions: Submission[], paired: (Paired | null)[], everything: boolean): HTMLElement {
  const rows = [
    ...generalRows(submissions),
    ...settingRows(submissions),
    ...stageRows(submissions),
    ...pairedRows(paired),
    ...metricRows(submissions),
  ];
  const shown = everything ? rows : rows.filter(differs);
  return section(
    everything ? 'Everything' : 'Differences',
    diffLinks(submissions),
    shown.length > 0
      ? scrollable('Submissions beside each other', tableOf(submissions, shown))
      : element('p', { class: 'empty' }, 'They do not differ.'),
  );
}

const kHowMany = `Name two to ${kMost} submissions by their numbers, or tick them in the leaderboard.`;

export const compareView: View = async ({ route, live, signal, main }) => {
  const { query } = route;
  const ids = element('input', {
    type: 'text',
    name: 'ids',
    value: query.get('ids') ?? '',
    size: 24,
    maxlength: 120,
    placeholder: '3, 5, 8',
  });
  const all = element('input', { type: 'checkbox', name: 'all' });
  all.checked = query.get('show') === 'all';
  const mixed = new MixedNotice();
  const place = element('div');
  let wanted: string[] = [];
  let submissions: Submission[] = [];
  let paired: (Paired | null)[] = [];
  const draw = () => {
    mixed.show(submissions);
    keepPlaces(place, () => replace(place, comparison(submissions, paired, all.checked)));
  };
  const load = async (stop: AbortSignal) => {
    wanted = [...new Set(ids.value.split(/[\s,#]+/).filter((part) => part !== ''))];
    if (wanted.length < 2 || wanted.length > kMost) {
      replace(place, element('p', { class: 'empty' }, kHowMany));
      submissions = [];
      mixed.show(submissions);
      return;
    }
    submissions = await Promise.all(wanted.map((id) => get<Submission>(`/v1/submissions/${idOf(id)}`, {}, stop)));
    const [first, ...others] = submissions;
    const diffs = others.map(({ id }) => get<Diff>(`/v1/submissions/${id}/diff`, { from: first?.id }, stop));
    paired = [null, ...(await Promise.all(diffs)).map((diff) => diff.paired ?? null)];
    draw();
  };
  const loader = new Loader(signal, load);
  const keep = () => keepQuery({ ids: ids.value.trim(), show: all.checked ? 'all' : '' });
  const changed = async (event: Event) => {
    event.preventDefault();
    keep();
    if (event.target === all && submissions.length > 0) draw();
    else await loader.run();
  };
  main.append(
    heading('Compare'),
    element(
      'form',
      { class: 'filters', 'aria-label': 'What is compared', onsubmit: changed, onchange: changed },
      element('label', { class: 'wide' }, 'submissions', ids),
      element('label', { class: 'check' }, all, 'also what is the same'),
      element('button', {}, 'Compare'),
    ),
    loader.place,
    mixed.element,
    place,
  );
  await follow(
    live,
    signal,
    loader,
    ({ submission, kind }) => kind !== 'progress' && wanted.includes(String(submission)),
  );
};
