// Everything about one submission.

import { get, getText } from '../api';
import { axis, Chart, tooltip } from '../charts';
import { codeBlock } from '../code';
import type { Artifact, Evaluation, FlowGraph, Metric, Submission, Summary } from '../documents';
import { element, replace, scrollable, section, type Child } from '../dom';
import { flowGraph } from '../flow_graph';
import {
  durationText,
  intervalText,
  kMainMetrics,
  metricNumber,
  metricStyle,
  metricText,
  sizeText,
  statusCell,
  timeCell,
  words,
} from '../format';
import { refreshOnEvents } from '../live';
import { hashOf, submissionHash } from '../router';
import { stageList } from '../stages';
import { DataTable } from '../table';
import { heading, idOf, Loader, type View } from '../view';

function artifactAddress(id: number, name: string): string {
  return `/v1/submissions/${id}/artifacts/${encodeURIComponent(name)}`;
}

function links(ids: number[]): Child[] {
  return ids.flatMap((id, index) => [index > 0 && ', ', element('a', { href: submissionHash(id) }, `#${id}`)]);
}

function facts(submission: Submission, children: Summary[]): HTMLElement {
  const { settings, parents } = submission;
  const pairs: [string, Child[]][] = [
    ['Agent', [submission.agent]],
    ['Status', [statusCell(submission.status)]],
    ['Handed in', [timeCell(submission.created)]],
    ['Changed', [timeCell(submission.updated)]],
    ...Object.entries(settings).map(([key, value]): [string, Child[]] => [
      words(key),
      [typeof value === 'string' ? value : JSON.stringify(value)],
    ]),
    ['Parents', parents.length > 0 ? links(parents) : ['none']],
    ['Children', children.length > 0 ? links(children.map(({ id }) => id)) : ['none']],
    ['Content', [element('code', { title: 'of script and settings' }, submission.content_hash.slice(0, 16))]],
  ];
  return element(
    'dl',
    { class: 'facts' },
    ...pairs.map(([term, children]) => element('div', {}, element('dt', {}, term), element('dd', {}, ...children))),
  );
}

function figures(submission: Submission): HTMLElement | false {
  const shown = kMainMetrics.filter((name) => submission.metrics[name]);
  if (shown.length === 0) return false;
  return element(
    'dl',
    { class: 'figures' },
    ...shown.map((name) => {
      const measured = submission.metrics[name];
      const interval = measured && intervalText(name, measured);
      return element(
        'div',
        {},
        element('dt', {}, metricStyle(name).title),
        element(
          'dd',
          {},
          measured ? metricText(name, measured.value) : '–',
          interval && element('span', { class: 'interval' }, interval),
        ),
      );
    }),
  );
}

function whyStopped({ evaluation, status }: Submission): HTMLElement | false {
  if (!evaluation?.message) return false;
  return element(
    'div',
    { class: status === 'passed' ? 'notice' : 'problem' },
    element('p', {}, element('strong', {}, `${words(status)}: `), element('span', { class: 'message' }, evaluation.message)),
    evaluation.hint && element('p', {}, element('strong', {}, 'Hint: '), element('span', { class: 'message' }, evaluation.hint)),
  );
}

function metricTable(metrics: Metric[]): HTMLElement {
  const table = new DataTable<Metric>({
    caption: 'All metrics of the last evaluation',
    rowKey: ({ name, task, tokens }) => `${name} ${task} ${tokens}`,
    empty: 'Nothing was measured.',
    columns: [
      { key: 'name', title: 'Metric', heads: true, value: ({ name }) => name, cell: ({ name }) => metricStyle(name).title },
      { key: 'task', title: 'Task', value: ({ task }) => task, cell: ({ task }) => task ?? 'all' },
      { key: 'tokens', title: 'Tokens', numeric: true, value: ({ tokens }) => tokens, cell: ({ tokens }) => tokens ?? 'all' },
      {
        key: 'value',
        title: 'Value',
        numeric: true,
        value: ({ value }) => value,
        cell: ({ name, value }) => metricNumber(name, value),
      },
      { key: 'interval', title: 'Interval (95%)', numeric: true, cell: (metric) => intervalText(metric.name, metric) || '–' },
      { key: 'unit', title: 'Unit', cell: ({ name, unit }) => metricStyle(name, unit).unit },
    ],
  });
  table.show([...metrics.filter(({ task }) => !task), ...metrics.filter(({ task }) => task)]);
  return table.element;
}

function massOf(evaluation: Evaluation | null): number[] {
  return evaluation?.stages.map(({ details }) => details.mass).find((mass) => Array.isArray(mass)) ?? [];
}

function massTable(mass: number[]): HTMLElement {
  return element(
    'table',
    {},
    element('caption', {}, 'Share of the dense attention mass that the selection covers'),
    element(
      'thead',
      {},
      element('tr', {}, element('th', { scope: 'col' }, 'Layer'), element('th', { scope: 'col' }, 'Mass (%)')),
    ),
    element(
      'tbody',
      {},
      ...mass.map((share, layer) =>
        element(
          'tr',
          {},
          element('th', { scope: 'row', class: 'number' }, String(layer)),
          element('td', { class: 'number' }, metricNumber('mass', share)),
        ),
      ),
    ),
  );
}

function massChart(mass: number[], signal: AbortSignal): HTMLElement {
  const chart = new Chart(signal, 'short');
  const least = Math.min(...mass);
  chart.show({
    title: 'Share of the dense attention mass that the selection covers, by layer',
    label: `Bars of ${mass.length} layers, from ${metricText('mass', least)} to ${metricText('mass', Math.max(...mass))}.`,
    option: (colours) => ({
      grid: { left: 56, right: 12, top: 12, bottom: 42 },
      tooltip: tooltip(colours, ({ data }) => {
        const [layer, share] = data as [number, number];
        return `layer ${layer}: ${share.toFixed(1)} %`;
      }),
      xAxis: axis('Layer', colours, { type: 'category', nameGap: 26, data: mass.map((_, layer) => String(layer)) }),
      yAxis: axis('Mass (%)', colours, { type: 'value', min: 0, max: 100, nameGap: 38 }),
      series: [
        {
          type: 'bar',
          barMaxWidth: 36,
          itemStyle: { color: colours.accent },
          data: mass.map((share, layer) => [layer, 100 * share]),
        },
      ],
    }),
    table: massTable(mass),
  });
  return chart.element;
}

function attemptTable(attempts: Evaluation[]): HTMLElement {
  const table = new DataTable<Evaluation>({
    caption: 'Attempts to judge it',
    rowKey: ({ id }) => id,
    empty: 'It has not been tried yet.',
    columns: [
      { key: 'attempt', title: 'Attempt', numeric: true, heads: true, cell: ({ attempt }) => attempt },
      { key: 'outcome', title: 'Outcome', cell: ({ outcome }) => outcome || 'running' },
      { key: 'status', title: 'Verdict', cell: ({ status }) => (status ? statusCell(status) : '–') },
      { key: 'started', title: 'Started', cell: ({ started }) => timeCell(started) },
      {
        key: 'took',
        title: 'Took',
        numeric: true,
        cell: ({ started, finished }) => (finished ? durationText((Date.parse(finished) - Date.parse(started)) / 1000) : '–'),
      },
      { key: 'worker', title: 'Worker', cell: ({ worker }) => worker },
      { key: 'message', title: 'Message', cell: ({ message }) => element('span', { class: 'message' }, message) },
    ],
  });
  table.show(attempts);
  return table.element;
}

function artifactList(id: number, artifacts: Artifact[]): HTMLElement {
  return element(
    'ul',
    {},
    ...artifacts.map(({ name, media_type, size }) =>
      element(
        'li',
        {},
        element('a', { href: artifactAddress(id, name), download: name }, name),
        element('span', { class: 'muted' }, ` ${media_type}, ${sizeText(size)}`),
      ),
    ),
  );
}

/** Its script, and what became of it: the graph that it was traced to, and the plan of that. */
async function flowSections({ id, script }: Submission, artifacts: Artifact[], stop: AbortSignal): Promise<Child[]> {
  const has = (name: string) => artifacts.some((artifact) => artifact.name === name);
  const graph = has('graph.json') && (await get<FlowGraph>(artifactAddress(id, 'graph.json'), {}, stop));
  const plan = has('plan.txt') && (await getText(artifactAddress(id, 'plan.txt'), stop));
  const code = section('Script', codeBlock(script, `Script of submission ${id}`));
  return [
    graph ? element('div', { class: 'beside even' }, code, section('Graph', flowGraph(graph))) : code,
    plan && section('Plan', scrollable('Plan', element('pre', {}, plan))),
  ];
}

function actions({ id, parents }: Submission): HTMLElement {
  const [parent] = parents;
  return element(
    'nav',
    { class: 'actions', 'aria-label': `Views of submission ${id}` },
    element('a', { class: 'button', href: hashOf(['lineage', id]) }, 'Lineage'),
    element('a', { class: 'button', href: hashOf(['submissions', id, 'diff']) }, parent ? `Diff with parent #${parent}` : 'Diff'),
    parent !== undefined &&
      element(
        'a',
        { class: 'button', href: hashOf(['compare'], { ids: [...parents.slice(0, 5), id].join(',') }) },
        'Compare with parents',
      ),
  );
}

export const submissionView: View = async ({ route, live, signal, main }) => {
  const id = idOf(route.path[1]);
  const loader = new Loader(signal);
  const place = element('div');
  main.append(loader.place, place);
  let drawn = new AbortController(); // charts of what was shown before
  const load = async (stop: AbortSignal) => {
    const address = `/v1/submissions/${id}`;
    const [submission, { evaluations }, { nodes }] = await Promise.all([
      get<Submission>(address, {}, stop),
      get<{ evaluations: Evaluation[] }>(`${address}/evaluations`, {}, stop),
      get<{ nodes: Summary[] }>(`${address}/lineage`, { of: 'descendants' }, stop),
    ]);
    const { evaluation } = submission;
    const artifacts = evaluation?.artifacts ?? [];
    const flow = await flowSections(submission, artifacts, stop);
    const mass = massOf(evaluation);
    const had = place.contains(document.activeElement);
    drawn.abort();
    drawn = new AbortController();
    signal.addEventListener('abort', () => drawn.abort(), { once: true });
    replace(
      place,
      heading(`#${id} ${submission.name}`, actions(submission)),
      facts(
        submission,
        nodes.filter(({ parents }) => parents.includes(id)),
      ),
      figures(submission),
      whyStopped(submission),
      submission.notes && section('Notes', element('p', { class: 'message' }, submission.notes)),
      evaluation
        ? section('Stages', stageList(evaluation))
        : section('Stages', element('p', { class: 'empty' }, 'It has not been judged yet.')),
      mass.length > 0 && section('Attention mass', massChart(mass, drawn.signal)),
      ...flow,
      evaluation !== null && evaluation.metrics.length > 0 && section('Metrics', metricTable(evaluation.metrics)),
      section('Attempts', attemptTable(evaluations)),
      artifacts.length > 0 && section('Artifacts', artifactList(id, artifacts)),
    );
    if (had) place.querySelector<HTMLElement>('h1')?.focus({ preventScroll: true });
  };
  await loader.run(load);
  if (loader.place.firstChild && !place.firstChild) place.append(heading(`#${id}`));
  refreshOnEvents(
    live,
    signal,
    ({ submission, kind }) => submission === id && kind !== 'progress',
    () => loader.run(load),
  );
};
