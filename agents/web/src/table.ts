// A table that is sorted by its headers and shown in pages.

import { element, replace, scrollable, type Child } from './dom';

export interface Column<Row> {
  key: string;
  title: string;
  /** Numbers are aligned at the right and sorted from the largest first. */
  numeric?: boolean;
  /** What names the row for those who hear the table. */
  heads?: boolean;
  /** Nothing, not a number, an empty text: at the end, whatever the order. Without it, the column cannot be sorted. */
  value?: (row: Row) => number | string | null | undefined;
  cell: (row: Row) => Child;
}

export interface TableState {
  sort: string;
  descending: boolean;
  page: number; // from 1
}

/** In the order in which rows come, from the first page. */
export function unsorted(): TableState {
  return { sort: '', descending: true, page: 1 };
}

/** What an address says of a table, which is sorted by `usual` unless it names another column. */
export function stateIn(query: URLSearchParams, usual: string): TableState {
  return {
    sort: query.get('sort') ?? usual,
    descending: query.get('order') !== 'ascending',
    page: Number(query.get('page')) || 1,
  };
}

export interface TableOptions<Row> {
  caption: string;
  columns: Column<Row>[];
  /** Unique; keeps the focus where it is when rows are shown anew. */
  rowKey: (row: Row) => string | number;
  empty: string;
  /** Kept up to date: a table that takes this one's place goes on with it. */
  state?: TableState;
  onState?: (state: TableState) => void;
  rowClass?: (row: Row) => string;
  /** Takes all the room there is: for tables of many columns. */
  wide?: boolean;
}

const kRowsOfPage = 50;

type Turn = [title: string, page: (page: number, pages: number) => number];
const kTurns: Turn[] = [
  ['First', () => 1],
  ['Previous', (page) => page - 1],
  ['Next', (page) => page + 1],
  ['Last', (_, pages) => pages],
];

/** The buttons that turn a table's pages. They stay the same whatever is shown, so that none goes while it is pressed. */
class Pager {
  readonly element: HTMLElement;
  private readonly buttons = kTurns.map(([title, to]) =>
    element('button', { type: 'button', onclick: () => this.press(to(this.page, this.pages)) }, title),
  );
  private readonly range = element('span', { role: 'status' });
  private page = 1;
  private pages = 1;

  /** `region` has the table, and takes the focus where there is nothing to turn any more. */
  constructor(
    caption: string,
    private readonly region: HTMLElement,
    private readonly turnTo: (page: number) => void,
  ) {
    const [first, previous, ...others] = this.buttons;
    const label = `Pages of: ${caption}`;
    this.element = element('nav', { class: 'pager', 'aria-label': label }, first, previous, this.range, ...others);
  }

  show(page: number, pages: number, rows: number): void {
    [this.page, this.pages] = [page, pages];
    const pressed = this.buttons.findIndex((button) => button === document.activeElement);
    this.buttons.forEach((button, index) => {
      const to = kTurns[index]?.[1](page, pages) ?? page;
      button.disabled = to < 1 || to > pages || to === page;
    });
    const range = `${(page - 1) * kRowsOfPage + 1}–${Math.min(page * kRowsOfPage, rows)} of ${rows}`;
    if (this.range.textContent !== range) this.range.textContent = range; // it is read out
    this.element.hidden = pages === 1;
    if (this.buttons[pressed]?.disabled) (this.nearest(pressed) ?? this.region).focus({ preventScroll: true });
  }

  /** The nearest button that has something to do. */
  private nearest(index: number): HTMLElement | undefined {
    const usable = this.buttons.filter((button) => !button.disabled);
    const distance = (button: HTMLButtonElement) => Math.abs(this.buttons.indexOf(button) - index);
    return usable.sort((a, b) => distance(a) - distance(b))[0];
  }

  private press(page: number): void {
    this.turnTo(page);
    this.element.scrollIntoView({ block: 'nearest' }); // the page may be longer
  }
}

export class DataTable<Row> {
  readonly element: HTMLElement;
  readonly state: TableState;
  private rows: Row[] = [];
  private readonly body = element('tbody');
  private readonly pager: Pager;
  private readonly headers = new Map<string, HTMLTableCellElement>();

  constructor(private readonly options: TableOptions<Row>) {
    this.state = options.state ?? unsorted();
    const head = element('tr');
    for (const column of options.columns) head.append(this.header(column));
    const table = element('table', {}, element('caption', {}, options.caption), element('thead', {}, head), this.body);
    const region = scrollable(options.caption, table);
    this.pager = new Pager(options.caption, region, (page) => this.turnTo(page));
    this.element = element(
      'div',
      { class: options.wide ? 'data-table wide' : 'data-table' },
      region,
      this.pager.element,
    );
    this.render();
  }

  show(rows: Row[]): void {
    this.rows = rows;
    this.render();
  }

  private header(column: Column<Row>): HTMLTableCellElement {
    const cell = element('th', { scope: 'col', class: column.numeric ? 'number' : '' });
    cell.append(
      column.value ? element('button', { type: 'button', onclick: () => this.sortBy(column) }, column.title) : column.title,
    );
    this.headers.set(column.key, cell);
    return cell;
  }

  private sortBy(column: Column<Row>): void {
    const again = this.state.sort === column.key;
    this.state.descending = again ? !this.state.descending : column.numeric === true;
    this.state.sort = column.key;
    this.turnTo(1);
  }

  private turnTo(page: number): void {
    this.state.page = page;
    this.options.onState?.(this.state);
    this.render();
  }

  private sorted(): Row[] {
    const column = this.options.columns.find((one) => one.key === this.state.sort);
    const value = column?.value;
    if (!value) return this.rows;
    const direction = this.state.descending ? -1 : 1;
    const keyed = this.rows.map((row) => ({ row, key: value(row) ?? '' }));
    const is_empty = (key: number | string) => key === '' || Number.isNaN(key);
    keyed.sort(({ key: a }, { key: b }) => {
      if (is_empty(a) || is_empty(b)) return Number(is_empty(a)) - Number(is_empty(b));
      return direction * (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b)));
    });
    return keyed.map(({ row }) => row);
  }

  private render(): void {
    for (const [key, cell] of this.headers) {
      const order = this.state.descending ? 'descending' : 'ascending';
      if (key === this.state.sort) cell.setAttribute('aria-sort', order);
      else cell.removeAttribute('aria-sort');
    }
    const pages = Math.max(1, Math.ceil(this.rows.length / kRowsOfPage));
    const page = Math.min(Math.max(1, this.state.page), pages);
    const shown = this.sorted().slice((page - 1) * kRowsOfPage, page * kRowsOfPage);
    const restore = this.keepFocus();
    replace(this.body, ...shown.map((row) => this.row(row)));
    if (shown.length === 0) {
      this.body.append(
        element('tr', {}, element('td', { colspan: this.options.columns.length, class: 'empty' }, this.options.empty)),
      );
    }
    this.pager.show(page, pages, this.rows.length);
    restore();
  }

  private row(row: Row): HTMLTableRowElement {
    const line = element('tr', { class: this.options.rowClass?.(row), 'data-key': this.options.rowKey(row) });
    for (const column of this.options.columns) {
      const attributes = { class: column.numeric ? 'number' : '' };
      const cell = column.cell(row);
      line.append(column.heads ? element('th', { scope: 'row', ...attributes }, cell) : element('td', attributes, cell));
    }
    return line;
  }

  /** Notes which control of which row has the focus; what it returns gives the focus to the one that took its place. */
  private keepFocus(): () => void {
    const active = document.activeElement;
    const row = this.body.contains(active) ? active?.closest('tr') : undefined;
    const controls = (line: Element) => [...line.querySelectorAll<HTMLElement>('a, button, input')];
    if (!row || !active) return () => {};
    const key = row.dataset.key;
    const position = controls(row).indexOf(active as HTMLElement);
    return () => {
      const same = [...this.body.children].find((line) => (line as HTMLElement).dataset.key === key);
      if (same) controls(same)[position]?.focus({ preventScroll: true });
    };
  }
}
