// Everything about one submission.

import { ApiError, get } from '../api';
import type { Artifact, Evaluation, HarnessEvent, Metric, Submission, Summary } from '../documents';
import { element, replace, section, type Child } from '../dom';
import {
  durationText,
  intervalText,
  kMainMetrics,
  measuredCell,
  metricNumber,
  metricStyle,
  metricText,
  metricTitle,
  sizeText,
  statusCell,
  timeCell,
  words,
} from '../format';
import { keepPlaces } from '../keep';
import { follow } from '../live';
import { Loader } from '../loader';
import { kConfirmedMetrics } from '../metrics';
import { finalSection } from '../finals';
import { parentsOfNew } from '../relatives';
import { hashOf, submissionHash } from '../router';
import { stageList } from '../stages';
import { flatteryText, isConfirmed } from '../standing';
import { DataTable, unsorted, type TableState } from '../table';
import { heading, idOf, type View } from '../view';
import { artifactAddress, flowSections } from './flow_sections';
import { massChart, massOf } from './mass_chart';

function links(ids: number[]): Child[] {
  return ids.flatMap((id, index) => [index > 0 && ', ', element('a', { href: submissionHash(id) }, `#${id}`)]);
}

/** `children` are missing where they cannot be read. */
function facts(submission: Submission, children: number[] | undefined): HTMLElement {
  const { settings, parents, same_as, final_of } = submission;
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
    ['Children', children ? (children.length > 0 ? links(children) : ['none']) : ['cannot be read now']],
    ['Content', [element('code', { title: 'of script and settings' }, submission.content_hash.slice(0, 16))]],
  ];
  if (typeof final_of === 'number') pairs.push(['Final of', links([final_of])]);
  if (typeof same_as === 'number') pairs.push(['Same flow as', [...links([same_as]), ', whose verdict it shares']]);
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

/** What was judged beside what was confirmed, as far as that is. */
function confirmationSection(submission: Submission): HTMLElement | false {
  const { confirmation, metrics } = submission;
  if (!confirmation) return false;
  const { state, status, automatic, agent, factor, tries, seed, message, hint } = confirmation;
  const told = state === 'done' ? (isConfirmed(submission) ? 'confirmed' : `refuted: ${words(status ?? '')}`) : words(state);
  const rows = [...kMainMetrics, ...kConfirmedMetrics.map(({ name }) => name)].filter((name) => metrics[name] ?? confirmation.metrics[name]);
  const table = new DataTable<string>({
    caption: 'Judged and confirmed',
    rowKey: (name) => name,
    empty: 'Nothing was measured.',
    columns: [
      { key: 'metric', title: 'Metric', heads: true, cell: metricTitle },
      { key: 'judged', title: 'Judged', numeric: true, cell: (name) => measuredCell(name, metrics[name]) },
      { key: 'confirmed', title: 'Confirmed', numeric: true, cell: (name) => measuredCell(name, confirmation.metrics[name]) },
    ],
  });
  table.show(rows);
  return section(
    'Confirmation',
    element(
      'p',
      {},
      element('strong', {}, told),
      `, asked for by ${automatic ? 'the server' : agent}, ${factor} times the samples, ` +
        `try ${tries} of its model, device and suite; confirmed intervals hold together with all tries`,
    ),
    message && element('p', {}, element('span', { class: 'message' }, message)),
    hint && element('p', {}, element('strong', {}, 'Hint: '), element('span', { class: 'message' }, hint)),
    state === 'done' && table.element,
    state === 'done' && element('p', {}, flatteryText(confirmation)),
    seed !== null && element('p', {}, 'Seed of its questions: ', element('code', {}, seed)),
  );
}

function metricTable(metrics: Metric[], state: TableState): HTMLElement {
  const table = new DataTable<Metric>({
    caption: 'All metrics of the last evaluation',
    rowKey: ({ name, task, tokens }) => `${name} ${task} ${tokens}`,
    empty: 'Nothing was measured.',
    state,
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

function attemptTable(attempts: Evaluation[], state: TableState): HTMLElement {
  const table = new DataTable<Evaluation>({
    caption: 'Attempts to judge it',
    rowKey: ({ id }) => id,
    empty: 'It has not been tried yet.',
    state,
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

/** What was made of a submission: read once, and again where something may have been missed; in between events tell. */
class Children {
  private ids = new Set<number>();
  private gaps = 0;
  private known: number | undefined; // gaps there had been when they were read

  constructor(private readonly parent: number) {}

  /** Nothing where they cannot be read, which takes nothing else away. */
  async load(stop: AbortSignal): Promise<number[] | undefined> {
    if (this.known !== this.gaps) await this.read(stop);
    return this.known === this.gaps ? [...this.ids] : undefined;
  }

  /** Whether an event tells, or may tell, of a new one. */
  async take(event: HarnessEvent, signal: AbortSignal): Promise<boolean> {
    const parents = await parentsOfNew(event, signal);
    if (!parents) this.forget();
    else if (event.submission !== null && parents.includes(this.parent)) this.ids.add(event.submission);
    else return false;
    return true;
  }

  /** Something may have been missed. */
  forget(): void {
    ++this.gaps;
  }

  private async read(stop: AbortSignal): Promise<void> {
    const { gaps } = this; // before it is asked: one meanwhile makes the answer old
    try {
      const { nodes } = await get<{ nodes: Summary[] }>(`/v1/submissions/${this.parent}/lineage`, { of: 'descendants' }, stop);
      for (const { id, parents } of nodes) if (parents.includes(this.parent)) this.ids.add(id);
      this.known = gaps;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }
}

interface Found {
  submission: Submission;
  evaluations: Evaluation[];
  children: number[] | undefined;
  flow: Child[];
}

/** How the tables are sorted, and at which page: the same when all of it is made anew. */
interface Tables {
  metrics: TableState;
  attempts: TableState;
}

/** `signal` ends what is drawn. */
function shown({ submission, evaluations, children, flow }: Found, tables: Tables, signal: AbortSignal): Child[] {
  const { id, evaluation } = submission;
  const artifacts = evaluation?.artifacts ?? [];
  const mass = massOf(evaluation);
  return [
    heading(`#${id} ${submission.name}`, actions(submission)),
    facts(submission, children),
    figures(submission),
    whyStopped(submission),
    confirmationSection(submission),
    finalSection(submission, [...kMainMetrics, ...kConfirmedMetrics.map(({ name }) => name)]),
    submission.notes && section('Notes', element('p', { class: 'message' }, submission.notes)),
    section('Stages', evaluation ? stageList(evaluation) : element('p', { class: 'empty' }, 'It has not been judged yet.')),
    mass.length > 0 && section('Attention mass', massChart(mass, signal)),
    ...flow,
    evaluation !== null && evaluation.metrics.length > 0 && section('Metrics', metricTable(evaluation.metrics, tables.metrics)),
    section('Attempts', attemptTable(evaluations, tables.attempts)),
    artifacts.length > 0 && section('Artifacts', artifactList(id, artifacts)),
  ];
}

export const submissionView: View = async ({ route, live, signal, main }) => {
  const id = idOf(route.path[1]);
  const place = element('div');
  const children = new Children(id);
  const tables = { metrics: unsorted(), attempts: unsorted() };
  let drawn = new AbortController(); // charts of what was shown before
  signal.addEventListener('abort', () => drawn.abort());
  let final: number | undefined; // whose events concern this one, too
  const load = async (stop: AbortSignal) => {
    const address = `/v1/submissions/${id}`;
    const [submission, { evaluations }, known] = await Promise.all([
      get<Submission>(address, {}, stop),
      get<{ evaluations: Evaluation[] }>(`${address}/evaluations`, {}, stop),
      children.load(stop),
    ]);
    final = submission.final?.id;
    const flow = await flowSections(submission, submission.evaluation?.artifacts ?? [], stop);
    keepPlaces(place, () => {
      drawn.abort();
      drawn = new AbortController();
      replace(place, ...shown({ submission, evaluations, children: known, flow }, tables, drawn.signal));
    });
  };
  const loader = new Loader(signal, load);
  main.append(loader.place, place);
  live.onGap(signal, () => children.forget());
  await follow(live, signal, loader, (event) =>
    event.submission === id || (event.submission !== null && event.submission === final) ? event.kind !== 'progress' : children.take(event, signal),
  );
  if (loader.place.firstChild && !place.firstChild) place.append(heading(`#${id}`));
};
