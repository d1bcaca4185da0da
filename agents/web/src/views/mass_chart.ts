// How much of dense attention's mass the selection covers, by layer.

import { axis, Chart, tooltip } from '../charts';
import type { Evaluation } from '../documents';
import { element, tableHead } from '../dom';
import { metricNumber, metricText } from '../format';

/** Of each layer; empty where no stage measured it. */
export function massOf(evaluation: Evaluation | null): number[] {
  return evaluation?.stages.map(({ details }) => details.mass).find((mass) => Array.isArray(mass)) ?? [];
}

function massTable(mass: number[]): HTMLElement {
  return element(
    'table',
    {},
    element('caption', {}, 'Share of the dense attention mass that the selection covers'),
    tableHead('Layer', 'Mass (%)'),
    element(
      'tbody',
      {},
      ...mass.map((share, layer) =>
        element(
          'tr',
          {},
          element('th', { scope: 'row', class: 'number' }, String(layer)),
          element('td', { class: 'number' }, metricNumber('mass', share)),
        ),
      ),
    ),
  );
}

export function massChart(mass: number[], signal: AbortSignal): HTMLElement {
  const chart = new Chart(signal, 'short');
  const least = Math.min(...mass);
  chart.show({
    title: 'Share of the dense attention mass that the selection covers, by layer',
    label: `Bars of ${mass.length} layers, from ${metricText('mass', least)} to ${metricText('mass', Math.max(...mass))}.`,
    option: (colours) => ({
      grid: { left: 56, right: 12, top: 12, bottom: 42 },
      tooltip: tooltip(colours, ({ data }) => {
        const [layer, share] = data as [number, number];
        return `layer ${layer}: ${share.toFixed(1)} %`;
      }),
      xAxis: axis('Layer', colours, { type: 'category', nameGap: 26, data: mass.map((_, layer) => String(layer)) }),
      yAxis: axis('Mass (%)', colours, { type: 'value', min: 0, max: 100, nameGap: 38 }),
      series: [
        {
          type: 'bar',
          barMaxWidth: 36,
          itemStyle: { color: colours.accent },
          data: mass.map((share, layer) => [layer, 100 * share]),
        },
      ],
    }),
    table: massTable(mass),
  });
  return chart.element;
}
