// Elements are made here and nowhere else, from text and never from markup: what an agent wrote cannot become part of the page. Nor
// can it hide: characters that are not seen are marked.

import { seenNodes, seenText } from './unseen';

export type Child = Node | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);
type Attributes = Record<string, Value>;

const kSvg = 'http://www.w3.org/2000/svg';

function set(target: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === 'function') {
    target.addEventListener(name.slice(2), value as EventListener);
  } else if (name === 'href' && !/^(#|\/v1\/)/.test(String(value))) {
    throw new Error(`the page links to itself and to the API, not to ${value}`);
  } else {
    target.setAttribute(name, value === true ? '' : kSaid.has(name) ? seenText(String(value)) : String(value));
  }
}

/** Attributes that people read or hear. */
const kSaid = new Set(['title', 'aria-label', 'placeholder']);

/** Elements with text alone in them. */
const kPlain = new Set(['option', 'title', 'textarea']);

function nodesOf(target: Element, text: string): (Node | string)[] {
  const takes_marks = target instanceof HTMLElement && !kPlain.has(target.localName);
  return takes_marks ? seenNodes(text) : [seenText(text)];
}

function filled<E extends Element>(target: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) set(target, name, value);
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    target.append(...(child instanceof Node ? [child] : nodesOf(target, String(child))));
  }
  return target;
}

/** An element of HTML. Attributes that are false or missing are left out; functions under "onclick" and the like listen. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(kSvg, tag) as SVGElementTagNameMap[K], attributes, children);
}

export function replace(target: Element, ...children: Child[]): void {
  target.replaceChildren();
  filled(target, {}, children);
}

/** A table or drawing that may be wider than the screen: it scrolls by itself, with the keyboard, too. */
export function scrollable(label: string, child: Node): HTMLElement {
  return element('div', { class: 'scroll', role: 'region', 'aria-label': label, tabindex: 0 }, child);
}

/** The head of a plain table. */
export function tableHead(...titles: string[]): HTMLTableSectionElement {
  return element('thead', {}, element('tr', {}, ...titles.map((title) => element('th', { scope: 'col' }, title))));
}

export function section(title: string, ...children: Child[]): HTMLElement {
  return element('section', { class: 'panel', 'aria-label': title }, element('h2', {}, title), ...children);
}
