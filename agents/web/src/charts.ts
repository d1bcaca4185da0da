// Charts by ECharts, each in a figure with a table of the same numbers for those who do not see it.

import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import {
  DataZoomInsideComponent,
  GridComponent,
  LegendScrollComponent,
  MarkLineComponent,
  TooltipComponent,
} from 'echarts/components';
import { init, use, type ComposeOption, type ECharts } from 'echarts/core';
import { CanvasRenderer } from 'echarts/renderers';
import type { BarSeriesOption, CustomSeriesOption, LineSeriesOption, ScatterSeriesOption } from 'echarts/charts';
import type { GridComponentOption, LegendComponentOption, TooltipComponentOption } from 'echarts/components';
import { element, replace } from './dom';
import { onTheme } from './theme';

use([
  BarChart,
  CustomChart,
  LineChart,
  ScatterChart,
  DataZoomInsideComponent,
  GridComponent,
  LegendScrollComponent,
  MarkLineComponent,
  TooltipComponent,
  CanvasRenderer,
]);

export type ChartOption = ComposeOption<
  | BarSeriesOption
  | CustomSeriesOption
  | LineSeriesOption
  | ScatterSeriesOption
  | GridComponentOption
  | LegendComponentOption
  | TooltipComponentOption
>;

/** Colours of the theme, as a canvas wants them. */
export interface Palette {
  text: string;
  muted: string;
  line: string;
  panel: string;
  accent: string;
  failed: string;
  series: string[];
}

const kSeriesColours = 8;
const kSymbols = ['circle', 'rect', 'triangle', 'diamond'];

function palette(): Palette {
  const probe = document.body.appendChild(element('span', { class: 'probe' }));
  const colour = (name: string) => {
    probe.className = `probe colour-${name}`;
    return getComputedStyle(probe).color;
  };
  const series = Array.from({ length: kSeriesColours }, (_, index) => colour(`series-${index}`));
  const found = {
    text: colour('text'),
    muted: colour('muted'),
    line: colour('line'),
    panel: colour('panel'),
    accent: colour('accent'),
    failed: colour('failed'),
    series,
  };
  probe.remove();
  return found;
}

/** A mark for the n-th of several series: shapes differ where colours come round again. */
export function seriesMark(index: number, colours: Palette): { color: string; symbol: string } {
  const rounds = Math.floor(index / kSeriesColours);
  return {
    color: colours.series[index % kSeriesColours] ?? colours.accent,
    symbol: kSymbols[(index + rounds) % kSymbols.length] ?? 'circle',
  };
}

export function axis(name: string, colours: Palette, more: object = {}): object {
  return {
    name,
    nameLocation: 'middle',
    nameTextStyle: { color: colours.muted },
    axisLabel: { color: colours.muted, hideOverlap: true },
    axisLine: { lineStyle: { color: colours.line } },
    axisTick: { lineStyle: { color: colours.line } },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.5 } },
    ...more,
  };
}

/** Text, never markup: names in it are whatever agents chose. */
export function tooltip(
  colours: Palette,
  formatter: (params: { data: unknown; seriesName?: string }) => string,
): TooltipComponentOption {
  return {
    renderMode: 'richText',
    confine: true,
    backgroundColor: colours.panel,
    borderColor: colours.line,
    textStyle: { color: colours.text, fontSize: 12 },
    // Braces would be taken for styles of rich text.
    formatter: (params) =>
      formatter(params as { data: unknown; seriesName?: string })
        .replaceAll('{', '(')
        .replaceAll('}', ')'),
  };
}

export interface ChartContent {
  title: string;
  /** What the drawing shows, in a sentence. */
  label: string;
  option: (colours: Palette) => ChartOption;
  /** The same numbers, unless a table beside the chart has them. */
  table?: Node;
  onClick?: (data: unknown) => void;
}

export class Chart {
  readonly element: HTMLElement;
  private readonly drawing: HTMLElement;
  private readonly numbers = element('div');
  private readonly details = element('details', {}, element('summary', {}, 'As a table'), this.numbers);
  private readonly title = element('figcaption');
  private instance: ECharts | undefined;
  private content: ChartContent | undefined;

  constructor(signal: AbortSignal, size: 'tall' | 'short' = 'tall') {
    this.drawing = element('div', { class: `drawing ${size}`, role: 'img' });
    this.element = element('figure', { class: 'chart' }, this.title, this.drawing, this.details);
    const observer = new ResizeObserver(() => this.fit());
    observer.observe(this.drawing);
    onTheme(signal, () => this.draw());
    signal.addEventListener('abort', () => {
      observer.disconnect();
      this.instance?.dispose();
      this.instance = undefined;
    });
  }

  show(content: ChartContent): void {
    this.content = content;
    replace(this.title, content.title);
    this.drawing.setAttribute('aria-label', content.label);
    this.details.hidden = !content.table;
    replace(this.numbers, content.table);
    this.draw();
  }

  /** ECharts measures its element once: it is made when the element has a size, and told when that changes. */
  private fit(): void {
    if (this.instance) this.instance.resize();
    else this.draw();
  }

  private draw(): void {
    if (!this.content || this.drawing.clientWidth === 0) return;
    if (!this.instance) {
      this.instance = init(this.drawing, undefined, { renderer: 'canvas' });
      this.instance.on('click', (params) => this.content?.onClick?.(params.data));
    }
    const still = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.instance.setOption({ animation: !still, animationDuration: 200, ...this.content.option(palette()) }, { notMerge: true });
  }
}
