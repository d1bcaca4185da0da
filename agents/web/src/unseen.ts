// Characters that nobody sees, or that turn the direction of writing: a script could look other than it is.

/**
 * Format characters (bidirectional controls, zero-width ones, tags), separators of lines and paragraphs, controls but tabs and line
 * breaks, and what has no look of its own (variation selectors, fillers).
 */
const kUnseen = /[\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?![\t\n])\p{Cc}/gu;

function numberOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/** The text with each of them as its number, as in "\u{202e}": for attributes, and elements that hold text alone. */
export function seenText(text: string): string {
  return text.replace(kUnseen, numberOf);
}

/** The text as nodes, where each of them is a mark with its number. */
export function seenNodes(text: string): Node[] {
  const nodes: Node[] = [];
  let end = 0;
  for (const match of text.matchAll(kUnseen)) {
    if (match.index > end) nodes.push(document.createTextNode(text.slice(end, match.index)));
    const mark = document.createElement('span');
    mark.className = 'unseen';
    mark.textContent = numberOf(match[0]);
    mark.title = 'a character that is not seen';
    nodes.push(mark);
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(document.createTextNode(text.slice(end)));
  return nodes;
}
