// Conversations as requests have them and as nobody would write them, the same every time.

/** Numbers from 0 to 1 (mulberry32). */
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const contents = [
  'What is the capital of France?', 'Hello', '', ' ', '\n', '  two spaces around  ', '\n\nline breaks around\n\n', 'a\nb\r\nc\td',
  '{{ messages }}', '{% if x %}', '{# not a comment #}', '{"json": [1, {"a": null}]}', '}}{{', '%}', "it's \"quoted\" \\ and \\n",
  'Ünïcödé ß ŉ', '日本語のテキスト', '👩‍👩‍👧‍👦🙂', '\u00a0no-break\u2003em\u3000wide ', '\u200bzero\ufeff', 'é', 'مرحبا', '<b>&amp;</b>',
  '<think>\nthoughts\n</think>\n\nanswer', '</think>', '<think>no end', 'a</think>b</think>c', '<tool_response>x</tool_response>',
  '<tool_response>', '[INST] x [/INST]', '<<SYS>>', '0', 'None', 'True', 'x'.repeat(3000), 'line\n'.repeat(200), '\u0001\u001f\u007f',
];
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a town: "now" & <later>',
    parameters: { type: 'object', properties: { town: { type: 'string', enum: ['Köln', 'Paris'] }, days: { type: 'integer' } }, required: ['town'] },
  },
};
const time = { type: 'function', function: { name: 'time', description: '', parameters: { type: 'object', properties: {} } } };

class Conversation {
  constructor(seed) {
    this.random = randomNumbers(seed);
  }
  below(count) {
    return Math.floor(this.random() * count);
  }
  chance(share) {
    return this.random() < share;
  }
  content() {
    const one = contents[this.below(contents.length)];
    return this.chance(0.3) ? one + contents[this.below(contents.length)] : one;
  }
  call() {
    const call = { name: this.chance(0.5) ? 'get_weather' : 'time', arguments: this.chance(0.2) ? '{"a": 1}' : { town: this.content(), days: this.below(9), list: [1.5, true, null] } };
    return this.chance(0.8) ? { type: 'function', id: 'call1', function: call } : call;
  }
  assistant(withTools) {
    const message = { role: 'assistant', content: this.content() };
    if (this.chance(0.1)) message.reasoning_content = this.content();
    if (withTools && this.chance(0.5)) message.tool_calls = Array.from({ length: 1 + this.below(2) }, () => this.call());
    return message;
  }
  messages() {
    const messages = [];
    const withTools = this.chance(0.3);
    if (this.chance(0.5)) messages.push({ role: 'system', content: this.content() });
    const turns = this.below(6);
    for (let i = 0; i < turns; ++i) {
      messages.push({ role: 'user', content: this.content() });
      if (i + 1 < turns || this.chance(0.3)) messages.push(this.assistant(withTools));
      if (withTools && this.chance(0.5)) messages.push({ role: this.chance(0.8) ? 'tool' : 'ipython', content: this.content(), name: 'get_weather' });
      if (this.chance(0.05)) messages.push({ role: this.chance(0.5) ? 'system' : 'developer', content: this.content() });
    }
    return messages;
  }
  variables(tokens) {
    const variables = { messages: this.messages(), add_generation_prompt: this.chance(0.7), ...tokens };
    if (this.chance(0.7)) variables.tools = null;
    if (this.chance(0.2)) variables.tools = this.chance(0.5) ? [weather, time] : [time];
    if (this.chance(0.3)) variables.enable_thinking = this.chance(0.5);
    if (this.chance(0.2)) variables.tools_in_user_message = this.chance(0.5);
    variables.date_string = '26 Jul 2024';
    return variables;
  }
}

/** Variables of `count` conversations. */
export function conversations(count, tokens) {
  return Array.from({ length: count }, (_, i) => new Conversation(i + 1).variables(tokens));
}
