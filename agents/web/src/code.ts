// Lua with its syntax in colours: a tree of tokens by highlight.js (through lowlight), of which text nodes are made.

import lua from 'highlight.js/lib/languages/lua';
import { createLowlight } from 'lowlight';
import { element } from './dom';
import { seenNodes } from './unseen';

const lowlight = createLowlight({ lua });

interface Token {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Token[];
}

function tokensOf(text: string): Token[] {
  const tree: { children: Token[] } = lowlight.highlight('lua', text);
  return tree.children;
}

function classOf(token: Token): string {
  const classes = token.properties?.className;
  return Array.isArray(classes) ? classes.join(' ') : '';
}

function nodesOf(token: Token): Node[] {
  if (token.type === 'text') return seenNodes(token.value ?? '');
  return [element('span', { class: classOf(token) }, ...(token.children ?? []).flatMap(nodesOf))];
}

/**
 * The lines of a script, each a fragment of its own. Strings and comments of several lines have their colour in all of them,
 * which a line by itself would not tell.
 */
export function highlightedLines(script: string): DocumentFragment[] {
  const lines = [document.createDocumentFragment()];
  const add = (token: Token, classes: string[]) => {
    if (token.type !== 'text') {
      for (const child of token.children ?? []) add(child, [...classes, classOf(token)]);
      return;
    }
    (token.value ?? '').split('\n').forEach((piece, index) => {
      if (index > 0) lines.push(document.createDocumentFragment());
      if (piece === '') return;
      const coloured = classes.reduceRight<Node[]>((inner, name) => [element('span', { class: name }, ...inner)], seenNodes(piece));
      lines.at(-1)?.append(...coloured);
    });
  };
  for (const token of tokensOf(script)) add(token, []);
  return lines;
}

/** A script with numbers of its lines, which copying leaves out. */
export function codeBlock(script: string, label: string): HTMLElement {
  const count = script.replace(/\n$/, '').split('\n').length;
  const numbers = Array.from({ length: count }, (_, index) => index + 1).join('\n');
  return element(
    'div',
    { class: 'code scroll', role: 'region', 'aria-label': label, tabindex: 0 },
    element('pre', { class: 'line-numbers', 'aria-hidden': 'true' }, numbers),
    element('pre', {}, element('code', {}, ...tokensOf(script).flatMap(nodesOf))),
  );
}
