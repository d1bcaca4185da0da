// Lua with its syntax in colours: a tree of tokens by highlight.js (through lowlight), of which text nodes are made.

import lua from 'highlight.js/lib/languages/lua';
import { createLowlight } from 'lowlight';
import { element } from './dom';

const lowlight = createLowlight({ lua });

interface Token {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Token[];
}

function nodeOf(token: Token): Node {
  if (token.type === 'text') return document.createTextNode(token.value ?? '');
  const classes = token.properties?.className;
  return element('span', { class: Array.isArray(classes) ? classes.join(' ') : '' }, ...(token.children ?? []).map(nodeOf));
}

export function highlighted(text: string): DocumentFragment {
  const fragment = document.createDocumentFragment();
  const tree: { children: Token[] } = lowlight.highlight('lua', text);
  fragment.append(...tree.children.map(nodeOf));
  return fragment;
}

/** A script with numbers of its lines, which copying leaves out. */
export function codeBlock(script: string, label: string): HTMLElement {
  const count = script.replace(/\n$/, '').split('\n').length;
  const numbers = Array.from({ length: count }, (_, index) => index + 1).join('\n');
  return element(
    'div',
    { class: 'code scroll', role: 'region', 'aria-label': label, tabindex: 0 },
    element('pre', { class: 'line-numbers', 'aria-hidden': 'true' }, numbers),
    element('pre', {}, element('code', {}, highlighted(script))),
  );
}
