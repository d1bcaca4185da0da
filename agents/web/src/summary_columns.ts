// Columns that tables of submissions share.

import type { Summary } from './documents';
import { element } from './dom';
import { kMainMetrics, kStatuses, measuredCell, metricTitle, statusCell, timeCell } from './format';
import { submissionHash } from './router';
import { basisCell, basisText, standing } from './standing';
import type { Column } from './table';

export const kNumberColumn: Column<Summary> = {
  key: 'id',
  title: '#',
  numeric: true,
  value: ({ id }) => id,
  cell: ({ id }) => String(id),
};

export const kNameColumn: Column<Summary> = {
  key: 'name',
  title: 'Name',
  heads: true,
  value: ({ name }) => name,
  cell: ({ id, name }) => element('a', { href: submissionHash(id), class: 'name', title: name }, name),
};

export const kAgentColumn: Column<Summary> = {
  key: 'agent',
  title: 'Agent',
  value: ({ agent }) => agent,
  cell: ({ agent }) => agent,
};

export const kStatusColumn: Column<Summary> = {
  key: 'status',
  title: 'Status',
  value: ({ status }) => kStatuses.indexOf(status),
  cell: ({ status }) => statusCell(status),
};

export const kMetricColumns: Column<Summary>[] = kMainMetrics.map((name) => ({
  key: name,
  title: metricTitle(name),
  numeric: true,
  value: (summary) => standing(summary, name)?.value,
  cell: (summary) => measuredCell(name, standing(summary, name)),
}));

/** What the metrics are of. */
export const kBasisColumn: Column<Summary> = {
  key: 'basis',
  title: 'Basis',
  value: basisText,
  cell: basisCell,
};

export const kSettingColumns: Column<Summary>[] = (
  [
    ['model', 'Model'],
    ['device', 'Device'],
    ['suite', 'Suite'],
  ] as const
).map(([key, title]) => ({
  key,
  title,
  value: ({ settings }) => settings[key],
  cell: ({ settings }) => settings[key] ?? '–',
}));

export const kCreatedColumn: Column<Summary> = {
  key: 'created',
  title: 'Handed in',
  value: ({ created }) => created,
  cell: ({ created }) => timeCell(created),
};
