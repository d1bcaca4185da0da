// A metric by the time of the verdict: every attempt that measured it, by agent, and the best so far of those that passed.

import { allSubmissions } from '../api';
import { axis, Chart, seriesMark, tooltip, type ChartOption, type Palette } from '../charts';
import { element, section } from '../dom';
import { FilterForm, filterOf } from '../filters';
import {
  kMainMetrics,
  measuredCell,
  measuredText,
  metricNumber,
  metricStyle,
  metricText,
  metricTitle,
  statusCell,
  timeCell,
  timeText,
  words,
} from '../format';
import { follow } from '../live';
import { Loader } from '../loader';
import { MixedNotice } from '../mixed_settings';
import { keepQuery, submissionHash } from '../router';
import { DataTable, unsorted, type Column } from '../table';
import { verdictsOf, type Verdict } from '../verdicts';
import { heading, type View } from '../view';

interface Point {
  value: [string, number];
  verdict: Verdict;
  itemStyle?: object;
}

function tableOf(metric: string): DataTable<Verdict> {
  return new DataTable<Verdict>({
    caption: `${metricTitle(metric)} by the time of the verdict`,
    columns: columnsFor(metric),
    rowKey: ({ submission }) => submission.id,
    rowClass: ({ submission }) => (submission.status === 'passed' ? '' : 'not-passed'),
    empty: 'Nothing was measured.',
    state: { ...unsorted(), sort: 'finished' },
  });
}

function columnsFor(metric: string): Column<Verdict>[] {
  return [
    {
      key: 'finished',
      title: 'Judged',
      value: ({ submission }) => submission.updated,
      cell: ({ submission }) => timeCell(submission.updated),
    },
    {
      key: 'name',
      title: 'Submission',
      heads: true,
      value: ({ submission }) => submission.id,
      cell: ({ submission: { id, name } }) =>
        element('a', { href: submissionHash(id), class: 'name', title: name }, `#${id} ${name}`),
    },
    { key: 'agent', title: 'Agent', value: ({ submission }) => submission.agent, cell: ({ submission }) => submission.agent },
    {
      key: 'status',
      title: 'Status',
      value: ({ submission }) => submission.status,
      cell: ({ submission }) => statusCell(submission.status),
    },
    {
      key: 'suite',
      title: 'Suite',
      value: ({ submission }) => submission.settings.suite,
      cell: ({ submission }) => submission.settings.suite ?? '–',
    },
    {
      key: 'value',
      title: metricTitle(metric),
      numeric: true,
      value: ({ measured }) => measured.value,
      cell: ({ measured }) => measuredCell(metric, measured),
    },
    {
      key: 'best',
      title: 'Best so far',
      numeric: true,
      value: ({ best }) => best,
      cell: ({ best }) => (best === undefined ? '–' : metricNumber(metric, best)),
    },
  ];
}

function describe(metric: string, { submission, measured, best }: Verdict): string {
  const { id, name, agent, status, settings, updated } = submission;
  return [
    `#${id} ${name.slice(0, 60)}`,
    `${agent} · ${words(status)} · suite ${settings.suite ?? '–'}`,
    timeText(updated),
    measuredText(metric, measured),
    best === undefined ? 'nothing had passed' : `best so far ${metricText(metric, best)}`,
  ].join('\n');
}

function hollow(color: string, { panel }: Palette): object {
  return { color: panel, borderColor: color, borderWidth: 1.5 };
}

function optionOf(metric: string, verdicts: Verdict[], colours: Palette): ChartOption {
  const scale = metricStyle(metric).scale;
  const agents = [...new Set(verdicts.map(({ submission }) => submission.agent))].sort();
  const scatters = agents.map((agent, index) => {
    const mark = seriesMark(index, colours);
    return {
      type: 'scatter' as const,
      name: agent,
      cursor: 'pointer',
      symbol: mark.symbol,
      symbolSize: 8,
      itemStyle: { color: mark.color, opacity: 0.85 },
      data: verdicts
        .filter(({ submission }) => submission.agent === agent)
        .map((verdict): Point => ({
          value: [verdict.submission.updated, scale * verdict.measured.value],
          verdict,
          itemStyle: verdict.submission.status === 'passed' ? undefined : hollow(mark.color, colours),
        })),
    };
  });
  return {
    grid: { left: 62, right: 20, top: 36, bottom: 44 },
    legend: { type: 'scroll', top: 0, left: 0, itemWidth: 9, itemHeight: 9, data: agents, textStyle: { color: colours.text } },
    tooltip: tooltip(colours, ({ data }) => describe(metric, (data as Point).verdict)),
    xAxis: axis('Judged', colours, { type: 'time', nameGap: 28 }),
    yAxis: axis(metricTitle(metric), colours, { type: 'value', scale: true, boundaryGap: ['2%', '2%'], nameGap: 44 }),
    series: [
      {
        type: 'line',
        name: 'best so far',
        silent: true,
        step: 'end',
        showSymbol: false,
        data: verdicts.flatMap(({ submission, best }) => (best === undefined ? [] : [[submission.updated, scale * best]])),
        lineStyle: { color: colours.accent, width: 2 },
        itemStyle: { color: colours.accent },
      },
      ...scatters,
    ],
  };
}

function labelOf(metric: string, verdicts: Verdict[]): string {
  const passed = verdicts.filter(({ submission }) => submission.status === 'passed').length;
  const best = verdicts.at(-1)?.best;
  if (verdicts.length === 0) return 'Nothing was measured.';
  return (
    `${verdicts.length} ${verdicts.length === 1 ? 'verdict' : 'verdicts'} by time, ${passed} of them passed` +
    (best === undefined ? '' : `; the best so far is ${metricText(metric, best)}`) +
    '. The table below has the numbers.'
  );
}

export const progressView: View = async ({ route, live, signal, main }) => {
  const { query } = route;
  const select = element('select', { name: 'metric' });
  for (const name of kMainMetrics) select.append(element('option', { value: name }, metricTitle(name)));
  select.value = kMainMetrics.includes(query.get('metric') ?? '') ? (query.get('metric') as string) : 'score';
  const form = new FilterForm(filterOf(query), () => changed(), element('label', {}, 'metric', select));
  const mixed = new MixedNotice((field, value) => form.choose(field, value));
  const chart = new Chart(signal);
  const place = element('div');
  let table = tableOf(select.value);
  place.append(table.element);

  const load = async (stop: AbortSignal) => {
    const metric = select.value;
    const submissions = await allSubmissions(form.query(), stop);
    const verdicts = verdictsOf(submissions, metric);
    form.offer(submissions);
    mixed.show(submissions);
    table.show(verdicts);
    chart.show({
      title: `${metricTitle(metric)} of every verdict that measured it (hollow: not passed), and the best so far that passed`,
      label: labelOf(metric, verdicts),
      option: (colours) => optionOf(metric, verdicts, colours),
      onClick: (data) => {
        const { verdict } = (data ?? {}) as Partial<Point>;
        if (verdict) location.hash = submissionHash(verdict.submission.id);
      },
    });
  };
  select.addEventListener('change', () => {
    table = tableOf(select.value);
    place.replaceChildren(table.element);
  });
  const loader = new Loader(signal, load);
  const changed = () => {
    keepQuery({ ...form.query(), metric: select.value });
    void loader.run();
  };

  main.append(heading('Progress'), form.element, loader.place, mixed.element, section('Over time', chart.element), place);
  void form.loadAgents(signal);
  await follow(live, signal, loader, ({ kind }) => kind === 'finished');
};
