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
  state?: Partial<TableState>;
  onState?: (state: TableState) => void;
  rowClass?: (row: Row) => string;
  /** Takes all the room there is: for tables of many columns. */
  wide?: boolean;
}

const kRowsOfPage = 50;

export class DataTable<Row> {
  readonly element: HTMLElement;
  readonly state: TableState;
  private rows: Row[] = [];
  private readonly body = element('tbody');
  private readonly pager = element('nav', { class: 'pager' });
  private readonly headers = new Map<string, HTMLTableCellElement>();

  constructor(private readonly options: TableOptions<Row>) {
    this.state = { sort: '', descending: true, page: 1, ...options.state };
    const head = element('tr');
    for (const column of options.columns) head.append(this.header(column));
    const table = element('table', {}, element('caption', {}, options.caption), element('thead', {}, head), this.body);
    this.pager.setAttribute('aria-label', `Pages of: ${options.caption}`);
    this.element = element(
      'div',
      { class: options.wide ? 'data-table wide' : 'data-table' },
      scrollable(options.caption, table),
      this.pager,
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
    this.renderPager(page, pages);
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

  private renderPager(page: number, pages: number): void {
    this.pager.hidden = pages === 1;
    const turn = (title: string, to: number) =>
      element(
        'button',
        { type: 'button', disabled: to < 1 || to > pages || to === page, onclick: () => this.turn(to) },
        title,
      );
    const first = (page - 1) * kRowsOfPage + 1;
    const last = Math.min(page * kRowsOfPage, this.rows.length);
    const active = this.pager.contains(document.activeElement) ? document.activeElement?.textContent : undefined;
    replace(
      this.pager,
      turn('First', 1),
      turn('Previous', page - 1),
      element('span', { role: 'status' }, `${first}–${last} of ${this.rows.length}`),
      turn('Next', page + 1),
      turn('Last', pages),
    );
    if (active === undefined) return;
    // The button that had the focus has it again, or its neighbour where it has no more to do.
    const usable = [...this.pager.querySelectorAll('button')].filter((button) => !button.disabled);
    (usable.find((button) => button.textContent === active) ?? usable[0])?.focus({ preventScroll: true });
  }

  /** By a button, which stays in sight however long the page is. */
  private turn(page: number): void {
    this.turnTo(page);
    this.pager.scrollIntoView({ block: 'nearest' });
  }
}
