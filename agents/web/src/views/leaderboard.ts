// All submissions, failed ones among them, in a table; those with score and speed also as points, with the front of those
// that none beats in both. Where a second model judges what passed, the table goes by that, and what both disagree about stands
// below.

import { allSubmissions, get, type Query } from '../api';
import type { FinalsComparison, FrontPoint, Summary } from '../documents';
import { element, replace, section } from '../dom';
import { FilterForm, filterOf } from '../filters';
import { Disagreements, finalColumn, modelsOf } from '../finals';
import { measuredCell, metricTitle } from '../format';
import { follow } from '../live';
import { Loader } from '../loader';
import { MixedNotice } from '../mixed_settings';
import { hashOf, keepQuery, submissionHash } from '../router';
import { basisCell, isRefuted, standing } from '../standing';
import { FrontChart } from './front_chart';
import {
  kAgentColumn,
  kBasisColumn,
  kCreatedColumn,
  kMetricColumns,
  kNameColumn,
  kNumberColumn,
  kSettingColumns,
  kStatusColumn,
} from '../summary_columns';
import { DataTable, stateIn, type Column, type TableState } from '../table';
import { heading, type Context, type View } from '../view';

const kMostCompared = 6;
/** By which the table is sorted unless the reader says otherwise. */
const usualOrder = (has_finals: boolean) => (has_finals ? 'final' : 'score');

/** The models whose scores both stand in the table. */
type Models = ReturnType<typeof modelsOf>;

/** The submissions that a reader has ticked, and the link to their comparison. */
class Choice {
  readonly element = element('span', { class: 'choice', role: 'status' });
  readonly column: Column<Summary> = {
    key: 'chosen',
    title: 'Compare',
    cell: (row) => this.box(row),
  };
  private readonly chosen = new Set<number>();

  constructor() {
    this.tell();
  }

  private box({ id, name }: Summary): HTMLElement {
    const box = element('input', { type: 'checkbox', 'aria-label': `Compare ${id}, ${name}` });
    box.checked = this.chosen.has(id);
    box.addEventListener('change', () => {
      if (box.checked) this.chosen.add(id);
      else this.chosen.delete(id);
      this.tell();
    });
    return box;
  }

  private tell(): void {
    const count = this.chosen.size;
    const can = count >= 2 && count <= kMostCompared;
    this.element.replaceChildren(
      can
        ? element('a', { class: 'button', href: hashOf(['compare'], { ids: [...this.chosen].join(',') }) }, `Compare ${count}`)
        : count > kMostCompared
          ? `${count} ticked; at most ${kMostCompared} are compared`
          : 'Tick two to six to compare them',
    );
  }
}

const kFrontColumns: Column<FrontPoint>[] = [
  {
    key: 'name',
    title: 'Name',
    heads: true,
    cell: ({ submission: { id, name } }) => element('a', { href: submissionHash(id), class: 'name', title: name }, name),
  },
  {
    key: 'score',
    title: metricTitle('score'),
    numeric: true,
    cell: ({ submission, value }) => measuredCell('score', standing(submission, 'score') ?? { value }),
  },
  {
    key: 'speedup',
    title: metricTitle('speedup'),
    numeric: true,
    cell: ({ submission, speed }) => measuredCell('speedup', standing(submission, 'speedup') ?? { value: speed }),
  },
  { key: 'basis', title: 'Basis', cell: ({ submission }) => basisCell(submission) },
];

function frontTable(): DataTable<FrontPoint> {
  return new DataTable<FrontPoint>({
    caption: 'The front: none has both a higher score and more speed',
    columns: kFrontColumns,
    rowKey: ({ submission }) => submission.id,
    empty: 'Nothing has passed with both measured.',
    wide: true,
  });
}

function metricColumns(models: Models): Column<Summary>[] {
  if (!models) return kMetricColumns;
  const own = kMetricColumns.map((column) => (column.key === 'score' ? { ...column, title: `Score on ${models.first} (%)` } : column));
  return [finalColumn(models.last), ...own];
}

function submissionTable(state: TableState, models: Models, choice: Choice, onState: () => void): DataTable<Summary> {
  const run = [kBasisColumn, ...metricColumns(models), ...kSettingColumns];
  return new DataTable<Summary>({
    caption: 'Submissions',
    columns: [choice.column, kNumberColumn, kNameColumn, kAgentColumn, kStatusColumn, ...run, kCreatedColumn],
    rowKey: ({ id }) => id,
    rowClass: (row) => (row.status === 'passed' && !isRefuted(row) ? '' : 'not-passed'),
    empty: 'No submission is like that. Without filters, and still empty: hand one in with "sluice submit".',
    state,
    onState,
    wide: true,
  });
}

class Leaderboard {
  private readonly form: FilterForm;
  private readonly mixed = new MixedNotice((field, value) => this.form.choose(field, value));
  private readonly choice = new Choice();
  private table: DataTable<Summary>;
  private readonly tablePlace = element('div');
  private models: Models;
  private readonly disagreements = new Disagreements();
  private readonly front = frontTable();
  private readonly chart: FrontChart;
  private readonly hide = element('input', { type: 'checkbox', name: 'front' });
  private readonly count = element('p', { class: 'count', role: 'status' });
  readonly loader: Loader;
  private rows: Summary[] = [];
  private points: FrontPoint[] = [];

  constructor({ route: { query }, signal }: Context) {
    this.form = new FilterForm(filterOf(query), () => void this.filter());
    this.table = submissionTable(stateIn(query, usualOrder(false)), undefined, this.choice, () => this.keep());
    this.tablePlace.append(this.table.element);
    this.chart = new FrontChart(signal);
    this.loader = new Loader(signal, (stop) => this.load(stop));
    this.hide.checked = query.get('points') === 'front';
    this.hide.addEventListener('change', () => {
      this.keep();
      this.draw();
    });
    void this.form.loadAgents(signal);
  }

  get elements(): HTMLElement[] {
    const only = element('label', { class: 'check' }, this.hide, 'only the front');
    return [
      this.form.element,
      this.loader.place,
      this.mixed.element,
      ...this.loader.conceal(
        element(
          'div',
          { class: 'beside' },
          section('Score and speed', only, this.chart.element),
          section('Pareto front', this.front.element),
        ),
        element('div', { class: 'table-head' }, this.count, this.choice.element),
        this.tablePlace,
      ),
      this.disagreements.element,
    ];
  }

  private async filter(): Promise<void> {
    this.table.state.page = 1;
    this.keep();
    await this.loader.run();
  }

  private async load(stop: AbortSignal): Promise<void> {
    const query = this.form.query();
    const { points } = await get<{ points: FrontPoint[] }>('/v1/front', query, stop);
    // The first time there is something to see after one page; later what is there stays until all is known.
    const is_first = this.rows.length === 0;
    const rows = await allSubmissions(query, stop, (so_far) => is_first && this.show(so_far, ' so far …'));
    [this.rows, this.points] = [rows, points];
    const models = this.form.query().model ? undefined : modelsOf(rows);
    this.disagreements.show(models && (await get<FinalsComparison>('/v1/finals', this.comparedQuery(), stop)), models);
    this.show(rows, rows.length === 1 ? ' submission' : ' submissions');
    this.front.show(points);
    this.draw();
  }

  private show(rows: Summary[], what: string): void {
    this.loader.reveal();
    this.form.offer(rows);
    this.mixed.show(rows);
    this.setModels(this.form.query().model ? undefined : modelsOf(rows));
    this.table.show([...rows]);
    this.count.textContent = `${rows.length}${what}`;
  }

  /** Whatever became of a flow on either model. */
  private comparedQuery(): Query {
    return { ...this.form.query(), status: '' };
  }

  /** Another table where other models have columns, sorted as the reader wants it, or as such a table usually is. */
  private setModels(models: Models): void {
    if (models?.first === this.models?.first && models?.last === this.models?.last) return;
    const { state } = this.table;
    if (state.sort === usualOrder(this.models !== undefined)) state.sort = usualOrder(models !== undefined);
    this.models = models;
    this.table = submissionTable(state, models, this.choice, () => this.keep());
    replace(this.tablePlace, this.table.element);
  }

  private draw(): void {
    this.chart.show(this.rows, this.points, this.hide.checked);
  }

  private keep(): void {
    const { sort, descending, page } = this.table.state;
    keepQuery({
      ...this.form.query(),
      sort: sort === usualOrder(this.models !== undefined) ? '' : sort,
      order: descending ? '' : 'ascending',
      page: page === 1 ? '' : page,
      points: this.hide.checked ? 'front' : '',
    });
  }
}

export const leaderboardView: View = async (context) => {
  const leaderboard = new Leaderboard(context);
  context.main.append(heading('Leaderboard'), ...leaderboard.elements);
  await follow(context.live, context.signal, leaderboard.loader, ({ kind }) => kind !== 'progress');
};
