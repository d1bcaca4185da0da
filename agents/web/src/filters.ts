// The form by which lists and comparisons are filtered; its fields are the API's query parameters.

import { get, type Query } from './api';
import type { Summary } from './documents';
import { element } from './dom';
import { kStatuses, words } from './format';

const kSelects = ['agent', 'status', 'model', 'device', 'suite'] as const;
const kFields = [...kSelects, 'text'] as const;
export type Filter = Partial<Record<(typeof kFields)[number], string>>;

export function filterOf(query: URLSearchParams): Filter {
  const filter: Filter = {};
  for (const field of kFields) {
    const value = query.get(field);
    if (value) filter[field] = value;
  }
  return filter;
}

export class FilterForm {
  readonly element: HTMLFormElement;
  readonly filter: Filter;
  private readonly seen = new Map<string, Set<string>>([['status', new Set(kStatuses)]]);
  private readonly selects = new Map<string, HTMLSelectElement>();
  private readonly text = element('input', {
    type: 'search',
    name: 'text',
    placeholder: 'name, notes or script',
    maxlength: 100,
  });

  constructor(
    filter: Filter,
    private readonly changed: () => void,
    ...more: Node[]
  ) {
    this.filter = { ...filter };
    this.element = element('form', { class: 'filters', role: 'search', 'aria-label': 'Filters' });
    for (const field of kSelects) {
      const select = element('select', { name: field });
      this.selects.set(field, select);
      this.element.append(element('label', {}, words(field), select));
    }
    this.text.value = filter.text ?? '';
    const clear = element('button', { type: 'button', onclick: () => this.clear() }, 'Clear');
    this.element.append(element('label', { class: 'wide' }, 'text', this.text), ...more, clear);
    this.element.addEventListener('submit', (event) => event.preventDefault());
    this.element.addEventListener('change', () => this.read());
    this.offer([]);
  }

  /** Offers the agents that there are. That they are unknown keeps nobody from reading the rest. */
  async loadAgents(signal: AbortSignal): Promise<void> {
    const { agents } = await get<{ agents: { name: string }[] }>('/v1/agents', {}, signal).catch(() => ({ agents: [] }));
    this.add(
      'agent',
      agents.map(({ name }) => name),
    );
    this.fill();
  }

  /** Offers what these submissions have. */
  offer(submissions: Summary[]): void {
    for (const field of ['model', 'device', 'suite'] as const) {
      this.add(
        field,
        submissions.map(({ settings }) => settings[field]).filter((value) => typeof value === 'string'),
      );
    }
    this.add(
      'model',
      submissions.map(({ final }) => final?.settings.model).filter((value) => typeof value === 'string'),
    );
    this.add(
      'agent',
      submissions.map(({ agent }) => agent),
    );
    this.fill();
  }

  query(): Query {
    return { ...this.filter };
  }

  /** As if the reader had chosen it. */
  choose(field: (typeof kSelects)[number], value: string): void {
    this.add(field, [value]);
    this.fill();
    const select = this.selects.get(field);
    if (!select) return;
    select.value = value;
    select.focus();
    this.read();
  }

  private add(field: string, values: string[]): void {
    const known = this.seen.get(field) ?? new Set();
    for (const value of values) known.add(value);
    this.seen.set(field, known);
  }

  private fill(): void {
    for (const field of kSelects) {
      const select = this.selects.get(field);
      const chosen = this.filter[field] ?? '';
      if (chosen) this.add(field, [chosen]);
      const values = [...(this.seen.get(field) ?? [])];
      if (field !== 'status') values.sort();
      if (!select || select.options.length === values.length + 1) continue;
      select.replaceChildren(
        element('option', { value: '' }, 'any'),
        ...values.map((value) => element('option', { value }, field === 'status' ? words(value) : value)),
      );
      select.value = chosen;
    }
  }

  private read(): void {
    for (const field of kSelects) this.set(field, this.selects.get(field)?.value ?? '');
    this.set('text', this.text.value.trim());
    this.changed();
  }

  private set(field: keyof Filter, value: string): void {
    if (value) this.filter[field] = value;
    else delete this.filter[field];
  }

  private clear(): void {
    for (const select of this.selects.values()) select.value = '';
    this.text.value = '';
    this.read();
  }
}
