// Pictures of a flow's static patterns: which keys, to the right, each query sees, downwards.

import type { FlowPattern } from './documents';
import { element, svg } from './dom';

const kSide = 240; // of a picture, in its own units

const kRoles: Record<FlowPattern['role'], string> = {
  alone: 'Pattern',
  around: 'Pattern around the selection',
  beside: 'Tokens beside the selection',
};

function factsOf(pattern: FlowPattern): string {
  const { role, layers, head = 0, heads = 1, tokens, kept, any_size, blind, pages_read, dense_prefill } = pattern;
  const area = `${pattern.area_exact ? '' : 'about '}${(100 * pattern.area).toFixed(1)}%`;
  const facts = [
    `${layers} ${layers === 1 ? 'layer' : 'layers'}`,
    heads > 1 && `KV head ${head} of ${heads}`,
    `${area} of what dense attention sees`,
    role === 'alone' && !dense_prefill && `keeps ${any_size || `${kept} of ${tokens} tokens`}`,
    `${pages_read} ${pages_read === 1 ? 'page' : 'pages'} in the last of ${tokens} steps`,
    blind > 0 && (blind === 1 ? '1 query sees nothing' : `${blind} queries see nothing`),
    dense_prefill && 'prompts are dense',
  ];
  return facts.filter(Boolean).join(', ');
}

function picture({ text, shares, tokens }: FlowPattern): SVGElement {
  const cell = kSide / Math.max(shares.length, 1);
  const cells = shares.flatMap((row, y) =>
    row.map(
      (share, x) =>
        share > 0 &&
        svg('rect', {
          class: 'seen',
          x: (x * cell).toFixed(2),
          y: (y * cell).toFixed(2),
          // Cells overlap by a little, or lines between them would show.
          width: (cell + 0.05).toFixed(2),
          height: (cell + 0.05).toFixed(2),
          'fill-opacity': (0.15 + 0.85 * share).toFixed(2),
        }),
    ),
  );
  return svg(
    'svg',
    {
      class: 'pattern',
      viewBox: `0 0 ${kSide} ${kSide}`,
      width: kSide,
      height: kSide,
      role: 'img',
      'aria-label': `Which keys each of ${tokens} queries sees under ${text}`,
    },
    svg('path', { class: 'causal', d: `M0 0V${kSide}H${kSide}Z` }),
    ...cells,
  );
}

export function patternPictures(patterns: FlowPattern[]): HTMLElement {
  return element(
    'div',
    { class: 'patterns' },
    ...patterns.map((pattern) =>
      element(
        'figure',
        {},
        picture(pattern),
        element('figcaption', {}, `${kRoles[pattern.role]}: `, element('code', {}, pattern.text), ` (${factsOf(pattern)})`),
      ),
    ),
  );
}
