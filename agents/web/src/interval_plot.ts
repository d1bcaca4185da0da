// An accuracy beside dense attention's, each with its interval, on a line from 0 to 100%.

import { svg } from './dom';
import type { Task } from './documents';

const kSize = { width: 220, height: 26 };
const kEdge = 5; // so that marks at the ends are whole

const at = (share: number) => kEdge + share * (kSize.width - 2 * kEdge);

function mark(name: string, y: number, value: number, low: number, high: number): SVGElement {
  return svg(
    'g',
    { class: name },
    svg('line', { x1: at(low), x2: at(high), y1: y, y2: y }),
    name === 'dense'
      ? svg('rect', { x: at(value) - 3, y: y - 3, width: 6, height: 6 })
      : svg('circle', { cx: at(value), cy: y, r: 3.5 }),
  );
}

/** Only a drawing: the numbers stand beside it. */
export function intervalPlot(task: Task): SVGSVGElement {
  return svg(
    'svg',
    {
      class: 'interval-plot',
      width: kSize.width,
      height: kSize.height,
      viewBox: `0 0 ${kSize.width} ${kSize.height}`,
      'aria-hidden': 'true',
    },
    ...[0, 0.25, 0.5, 0.75, 1].map((share) =>
      svg('line', { class: 'grid', x1: at(share), x2: at(share), y1: 0, y2: kSize.height }),
    ),
    mark('flow', 8, task.accuracy, task.low, task.high),
    mark('dense', 18, task.dense_accuracy, task.dense_low, task.dense_high),
  );
}
