// Accuracy against speed: a point for each submission, and the line above which nobody has come.

import { axis, Chart, tooltip, type ChartOption, type Palette } from '../charts';
import type { FrontPoint, Measured, Summary } from '../documents';
import { measuredText, words } from '../format';
import { submissionHash } from '../router';
import { basisText, isRefuted, standing } from '../standing';

interface Point {
  value: [number, number]; // times dense, percent
  submission: Summary;
}

const kMarkSize = 9;
const kSmallMarkSize = 5;
const kMany = 500; // points, of which small marks are made
const kDense = 1; // times as fast as dense attention
const kCap = 4; // half of the bar at the end of a whisker, in pixels

// Whiskers lie on the front's line, which runs straight from point to point: it is broad and pale, they are thin and have bars.
const kLine = { width: 4, opacity: 0.65 };
const kLineName = 'line of the front';
const kWhiskerName = '95% interval';
const kLegend = [
  { name: 'front', icon: 'circle' },
  { name: kLineName, icon: 'path://M0 4H10V6H0Z' },
  { name: kWhiskerName, icon: 'path://M0 2H1V4.5H9V2H10V8H9V5.5H1V8H0Z' },
  { name: 'dominated', icon: 'circle' },
  { name: 'not passed', icon: 'diamond' },
];

function pointOf(submission: Summary): Point | undefined {
  const [score, speedup] = [standing(submission, 'score'), standing(submission, 'speedup')];
  return score && speedup && { value: [speedup.value, 100 * score.value], submission };
}

function describe({ data }: { data: unknown }): string {
  const { submission } = data as Point;
  const told = (name: string) => measuredText(name, standing(submission, name));
  return [
    `#${submission.id} ${submission.name.slice(0, 60)}`,
    `${submission.agent} · ${words(submission.status)} · ${basisText(submission)}`,
    `score ${told('score')}`,
    `accuracy ${told('accuracy')}`,
    `dense ${told('dense_accuracy')}`,
    `speed ${told('speedup')}`,
  ].join('\n');
}

interface Whiskers {
  speed: [number, number];
  score: [number, number];
}

/** The intervals of a point; where there is none, the point itself. */
function whiskersOf({ value: [speed, score], submission }: Point): Whiskers {
  const ends = (measured: Measured | undefined, value: number, scale: number): [number, number] => [
    typeof measured?.low === 'number' ? scale * measured.low : value,
    typeof measured?.high === 'number' ? scale * measured.high : value,
  ];
  return { speed: ends(standing(submission, 'speedup'), speed, 1), score: ends(standing(submission, 'score'), score, 100) };
}

/** From the least to the greatest of `values`, with room around them, at multiples of a step: the largest that leaves several. */
function range(values: number[], steps: number[]): { min: number; max: number } {
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const greatest = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const step = steps.find((one) => greatest - least > 3 * one) ?? Math.min(...steps);
  const multiple = (value: number, round: (value: number) => number) => Number((round(value / step) * step).toFixed(6));
  return { min: multiple(least - step / 8, Math.floor), max: multiple(greatest + step / 8, Math.ceil) };
}

/** A point, and the ends of its intervals: as whiskersOf, in a row. */
type Ends = [number, number, number, number, number, number];

interface Api {
  value(index: number): number;
  coord(at: number[]): number[];
}

/** From end to end, with a bar across each end. */
function whisker([x1 = 0, y1 = 0]: number[], [x2 = 0, y2 = 0]: number[], colour: string): object[] {
  const line = (left: number, top: number, right: number, bottom: number) => ({
    type: 'line',
    shape: { x1: left, y1: top, x2: right, y2: bottom },
    style: { stroke: colour, lineWidth: 1 },
  });
  if (x1 === x2 && y1 === y2) return [];
  const [aside, up] = x1 === x2 ? [kCap, 0] : [0, kCap];
  const bar = (x: number, y: number) => line(x - aside, y - up, x + aside, y + up);
  return [line(x1, y1, x2, y2), bar(x1, y1), bar(x2, y2)];
}

function whiskerSeries(points: Point[], colour: string): object {
  const ends = points.map((point) => {
    const { speed, score } = whiskersOf(point);
    return [...point.value, ...speed, ...score];
  });
  return {
    type: 'custom',
    name: kWhiskerName,
    silent: true,
    clip: true,
    z: 3,
    itemStyle: { color: colour },
    data: ends,
    renderItem: (_: unknown, api: Api) => {
      const [x, y, slowest, fastest, worst, best] = [0, 1, 2, 3, 4, 5].map((index) => api.value(index)) as Ends;
      return {
        type: 'group',
        children: [
          ...whisker(api.coord([slowest, y]), api.coord([fastest, y]), colour),
          ...whisker(api.coord([x, worst]), api.coord([x, best]), colour),
        ],
      };
    },
  };
}

/** What the axes have to show: whiskers, marks, and dense attention (speed) or a score of 100%. */
function extents(best: Point[], others: Point[]): { speeds: number[]; scores: number[] } {
  const shown = [...best, ...others];
  const whiskers = best.map(whiskersOf);
  return {
    speeds: [...whiskers.flatMap(({ speed }) => speed), ...shown.map(({ value }) => value[0]), kDense],
    scores: [...whiskers.flatMap(({ score }) => score), ...shown.map(({ value }) => value[1]), 100],
  };
}

/** Those that others beat below, then the front's line, its whiskers and its marks. */
function seriesOf(best: Point[], others: Point[], colours: Palette): ChartOption['series'] {
  const has_passed = ({ submission }: Point) => submission.status === 'passed' && !isRefuted(submission);
  const passed = others.filter(has_passed);
  const stopped = others.filter((point) => !has_passed(point));
  const size = others.length > kMany ? kSmallMarkSize : kMarkSize;
  const scatter = { type: 'scatter' as const, symbolSize: size, cursor: 'pointer' };
  return [
    { ...scatter, name: 'dominated', data: passed, itemStyle: { color: colours.muted, opacity: 0.65 } },
    {
      ...scatter,
      name: 'not passed',
      data: stopped,
      symbol: 'diamond',
      itemStyle: { color: colours.panel, borderColor: colours.failed, borderWidth: 1.5 },
    },
    {
      type: 'line',
      name: kLineName,
      silent: true,
      step: 'start',
      showSymbol: false,
      data: best.map(({ value }) => value),
      lineStyle: { color: colours.accent, ...kLine },
      itemStyle: { color: colours.accent },
      markLine: {
        silent: true,
        symbol: 'none',
        data: [{ xAxis: kDense }],
        label: { formatter: 'dense', color: colours.muted, position: 'insideEndTop' },
        lineStyle: { color: colours.muted, type: 'dashed' },
      },
    },
    whiskerSeries(best, colours.text),
    { ...scatter, name: 'front', symbolSize: kMarkSize, data: best, itemStyle: { color: colours.accent }, z: 4 },
  ] as ChartOption['series'];
}

export class FrontChart {
  private readonly chart: Chart;

  constructor(signal: AbortSignal) {
    this.chart = new Chart(signal);
  }

  get element(): HTMLElement {
    return this.chart.element;
  }

  show(submissions: Summary[], front: FrontPoint[], onlyFront: boolean): void {
    const onFront = new Set(front.map(({ submission }) => submission.id));
    const points = submissions.map(pointOf).filter((point) => point !== undefined);
    const best = points.filter(({ submission }) => onFront.has(submission.id)).sort((a, b) => a.value[0] - b.value[0]);
    const others = onlyFront ? [] : points.filter(({ submission }) => !onFront.has(submission.id));
    this.chart.show({
      title: 'Up and to the right is better; the broad line is the front, thin whiskers are 95% intervals',
      label:
        `Scatter of ${best.length + others.length} submissions by speed and score, ${best.length} of them on the front. ` +
        'The tables beside and below have the same numbers.',
      option: (colours) => this.option(best, others, colours),
      onClick: (data) => {
        const { submission } = (data ?? {}) as Partial<Point>;
        if (submission) location.hash = submissionHash(submission.id);
      },
    });
  }

  private option(best: Point[], others: Point[], colours: Palette): ChartOption {
    const { speeds, scores } = extents(best, others);
    return {
      grid: { left: 58, right: 16, top: 34, bottom: 42 },
      legend: {
        type: 'scroll',
        top: 0,
        left: 0,
        data: kLegend,
        textStyle: { color: colours.text },
        itemWidth: kMarkSize,
        itemHeight: kMarkSize,
      },
      tooltip: tooltip(colours, describe),
      xAxis: axis('Speed (× dense)', colours, { type: 'value', ...range(speeds, [2, 0.5, 0.1]), nameGap: 26 }),
      yAxis: axis('Score (%)', colours, {
        type: 'value',
        min: Math.max(0, range(scores, [20, 10, 2]).min),
        max: 100,
        nameGap: 40,
      }),
      series: seriesOf(best, others, colours),
    };
  }
}
