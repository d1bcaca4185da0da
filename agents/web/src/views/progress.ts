// A metric by the time of the verdict: every attempt, by agent, and the best so far.

import { get, kMostOfPage } from '../api';
import { axis, Chart, seriesMark, tooltip, type ChartOption, type Palette } from '../charts';
import type { HistoryPoint, Page } from '../documents';
import { element, section } from '../dom';
import { FilterForm, filterOf } from '../filters';
import { kMainMetrics, metricNumber, metricStyle, metricText, metricTitle, timeCell, timeText } from '../format';
import { refreshOnEvents } from '../live';
import { MixedNotice } from '../mixed_settings';
import { keepQuery, submissionHash } from '../router';
import { DataTable, type Column } from '../table';
import { heading, Loader, type View } from '../view';

interface Point {
  value: [string, number];
  point: HistoryPoint;
}

function tableOf(metric: string): DataTable<HistoryPoint> {
  return new DataTable<HistoryPoint>({
    caption: `${metricTitle(metric)} by the time of the verdict`,
    columns: columnsFor(metric),
    rowKey: ({ submission }) => submission,
    empty: 'Nothing was measured.',
    state: { sort: 'finished', descending: true },
  });
}

function columnsFor(metric: string): Column<HistoryPoint>[] {
  return [
    { key: 'finished', title: 'Judged', value: ({ finished }) => finished, cell: ({ finished }) => timeCell(finished) },
    {
      key: 'name',
      title: 'Submission',
      heads: true,
      value: ({ submission }) => submission,
      cell: ({ submission, name }) =>
        element('a', { href: submissionHash(submission), class: 'name', title: name }, `#${submission} ${name}`),
    },
    { key: 'agent', title: 'Agent', value: ({ agent }) => agent, cell: ({ agent }) => agent },
    {
      key: 'value',
      title: metricTitle(metric),
      numeric: true,
      value: ({ value }) => value,
      cell: ({ value }) => metricNumber(metric, value),
    },
    {
      key: 'best',
      title: 'Best so far',
      numeric: true,
      value: ({ best }) => best,
      cell: ({ best }) => metricNumber(metric, best),
    },
  ];
}

function optionOf(metric: string, points: HistoryPoint[], colours: Palette): ChartOption {
  const scale = metricStyle(metric).scale;
  const agents = [...new Set(points.map(({ agent }) => agent))].sort();
  const scatters = agents.map((agent, index) => {
    const mark = seriesMark(index, colours);
    return {
      type: 'scatter' as const,
      name: agent,
      cursor: 'pointer',
      symbol: mark.symbol,
      symbolSize: 8,
      itemStyle: { color: mark.color, opacity: 0.85 },
      data: points
        .filter((point) => point.agent === agent)
        .map((point): Point => ({ value: [point.finished, scale * point.value], point })),
    };
  });
  return {
    grid: { left: 62, right: 20, top: 36, bottom: 44 },
    legend: { type: 'scroll', top: 0, left: 0, itemWidth: 9, itemHeight: 9, data: agents, textStyle: { color: colours.text } },
    tooltip: tooltip(colours, ({ data }) => {
      const { point } = data as Point;
      const told = (value: number) => metricText(metric, value);
      return [
        `#${point.submission} ${point.name.slice(0, 60)}`,
        `${point.agent} · ${timeText(point.finished)}`,
        `${told(point.value)}, best so far ${told(point.best)}`,
      ].join('\n');
    }),
    xAxis: axis('Judged', colours, { type: 'time', nameGap: 28 }),
    yAxis: axis(metricTitle(metric), colours, { type: 'value', scale: true, boundaryGap: ['2%', '2%'], nameGap: 44 }),
    series: [
      {
        type: 'line',
        name: 'best so far',
        silent: true,
        step: 'end',
        showSymbol: false,
        data: points.map(({ finished, best }) => [finished, scale * best]),
        lineStyle: { color: colours.accent, width: 2 },
        itemStyle: { color: colours.accent },
      },
      ...scatters,
    ],
  };
}

export const progressView: View = async ({ route, live, signal, main }) => {
  const { query } = route;
  const select = element('select', { name: 'metric' });
  for (const name of kMainMetrics) select.append(element('option', { value: name }, metricTitle(name)));
  select.value = kMainMetrics.includes(query.get('metric') ?? '') ? (query.get('metric') as string) : 'accuracy';
  const loader = new Loader(signal);
  const form = new FilterForm(filterOf(query), () => changed(), element('label', {}, 'metric', select));
  const mixed = new MixedNotice((field, value) => form.choose(field, value));
  const chart = new Chart(signal);
  const place = element('div');
  let table = tableOf(select.value);
  place.append(table.element);

  const load = async (stop: AbortSignal) => {
    const metric = select.value;
    const order = metricStyle(metric).better === 'lower' ? 'ascending' : 'descending';
    const [{ points }, { submissions }] = await Promise.all([
      get<{ points: HistoryPoint[] }>('/v1/history', { ...form.query(), metric, order }, stop),
      // A point does not say how it was measured; the newest submissions do.
      get<Page>('/v1/submissions', { ...form.query(), limit: kMostOfPage }, stop),
    ]);
    form.offer(submissions);
    mixed.show(submissions);
    const last = points.at(-1);
    table.show(points);
    chart.show({
      title: `${metricTitle(metric)}: every verdict, and the best so far`,
      label: last
        ? `${points.length} verdicts by time; the best so far is ${metricText(metric, last.best)}. The table below has the numbers.`
        : 'Nothing was measured.',
      option: (colours) => optionOf(metric, points, colours),
      onClick: (data) => {
        const { point } = (data ?? {}) as Partial<Point>;
        if (point) location.hash = submissionHash(point.submission);
      },
    });
  };
  select.addEventListener('change', () => {
    table = tableOf(select.value);
    place.replaceChildren(table.element);
  });
  const changed = () => {
    keepQuery({ ...form.query(), metric: select.value });
    void loader.run(load);
  };

  main.append(heading('Progress'), form.element, loader.place, mixed.element, section('Over time', chart.element), place);
  void form.loadAgents(signal);
  await loader.run(load);
  refreshOnEvents(
    live,
    signal,
    ({ kind }) => kind === 'finished',
    () => loader.run(load),
  );
};
