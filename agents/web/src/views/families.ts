// All families of submissions in a table, from which one is opened.

import { allSubmissions } from '../api';
import type { Summary } from '../documents';
import { element } from '../dom';
import { familiesOf, hasMember, type Family } from '../families';
import { follow } from '../live';
import { Loader } from '../loader';
import { MixedNotice } from '../mixed_settings';
import { hashOf, keepQuery } from '../router';
import { kAgentColumn, kCreatedColumn, kMetricColumns, kNameColumn, kNumberColumn, kStatusColumn } from '../summary_columns';
import { DataTable, stateIn, type Column } from '../table';
import { heading, type Context, type View } from '../view';

type Member = (family: Family) => Summary | undefined;
const root: Member = (family) => family.root;
const newest: Member = (family) => family.newest;
const best: Member = (family) => family.best;

/** A column of submissions as one of families: what it says of a member. */
function columnOf(column: Column<Summary>, member: Member, more: Partial<Column<Family>> = {}): Column<Family> {
  const { value, cell, ...rest } = column;
  return {
    ...rest,
    value: (family) => {
      const found = member(family);
      return found && value?.(found);
    },
    cell: (family) => {
      const found = member(family);
      return found ? cell(found) : '–';
    },
    ...more,
  };
}

const kFamilyColumn: Column<Family> = {
  key: 'family',
  title: 'Family of',
  heads: true,
  value: (family) => family.root.name,
  cell: ({ root: { id, name }, roots }) =>
    element(
      'span',
      {},
      element('a', { href: hashOf(['lineage', id]), class: 'name', title: name }, name),
      roots > 1 && element('span', { class: 'muted' }, ` and ${roots - 1} more`),
    ),
};

const kDescendantsColumn: Column<Family> = {
  key: 'descendants',
  title: 'Descendants',
  numeric: true,
  value: ({ members, roots }) => members.length - roots,
  cell: ({ members, roots }) => String(members.length - roots),
};

const kScoreColumns = kMetricColumns.filter(({ key }) => key === 'score');
const kUsualOrder = 'newest';

function familyTable(query: URLSearchParams, onState: () => void): DataTable<Family> {
  return new DataTable<Family>({
    caption: 'Families',
    columns: [
      columnOf(kNumberColumn, root),
      kFamilyColumn,
      columnOf(kAgentColumn, root),
      columnOf(kStatusColumn, root),
      kDescendantsColumn,
      columnOf(kNameColumn, best, { key: 'best', title: 'Best score', heads: false }),
      ...kScoreColumns.map((column) => columnOf(column, best)),
      columnOf(kCreatedColumn, newest, { key: kUsualOrder, title: 'Newest member' }),
    ],
    rowKey: (family) => family.root.id,
    empty: 'No family is like that, or there is no submission yet.',
    state: stateIn(query, kUsualOrder),
    onState,
    wide: true,
  });
}

class Families {
  private readonly text = element('input', {
    type: 'search',
    name: 'text',
    placeholder: 'name, agent or #12',
    maxlength: 200,
  });
  private readonly related = element('input', { type: 'checkbox', name: 'related' });
  private readonly count = element('p', { class: 'count', role: 'status' });
  private readonly mixed = new MixedNotice();
  private readonly table: DataTable<Family>;
  readonly loader: Loader;
  private families: Family[] = [];

  constructor({ route: { query }, signal }: Context) {
    this.text.value = query.get('text') ?? '';
    this.related.checked = query.get('related') === 'yes';
    this.table = familyTable(query, () => this.keep());
    this.loader = new Loader(signal, (stop) => this.load(stop));
  }

  get elements(): HTMLElement[] {
    const form = element(
      'form',
      { class: 'filters', role: 'search', 'aria-label': 'Filters', onsubmit: (event: Event) => event.preventDefault() },
      element('label', { class: 'wide' }, 'any member', this.text),
      element('label', { class: 'check' }, this.related, 'only with descendants'),
    );
    form.addEventListener('input', () => this.filter());
    return [form, this.loader.place, this.mixed.element, this.count, this.table.element];
  }

  /** What belongs together is known when the oldest has come, and lists begin with the newest: all of them are read. */
  private async load(stop: AbortSignal): Promise<void> {
    const is_first = this.families.length === 0;
    const submissions = await allSubmissions({}, stop, ({ length }) => {
      if (is_first) this.count.textContent = `${length} submissions read so far …`;
    });
    this.families = familiesOf(submissions);
    this.mixed.show(this.families.map(best).filter((found) => found !== undefined));
    this.show();
  }

  private show(): void {
    const shown = this.families.filter(
      (family) => (!this.related.checked || family.members.length > 1) && hasMember(family, this.text.value),
    );
    this.table.show(shown);
    this.count.textContent = `${shown.length} of ${this.families.length} families`;
  }

  private filter(): void {
    this.table.state.page = 1;
    this.keep();
    this.show();
  }

  private keep(): void {
    const { sort, descending, page } = this.table.state;
    keepQuery({
      text: this.text.value.trim(),
      related: this.related.checked ? 'yes' : '',
      sort: sort === kUsualOrder ? '' : sort,
      order: descending ? '' : 'ascending',
      page: page === 1 ? '' : page,
    });
  }
}

export const familiesView: View = async (context) => {
  const families = new Families(context);
  context.main.append(heading('Lineage'), ...families.elements);
  await follow(context.live, context.signal, families.loader, ({ kind }) => kind !== 'progress');
};
