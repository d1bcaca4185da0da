// What the stages of an evaluation found.

import type { Evaluation, Stage, Task } from './documents';
import { element, scrollable, tableHead, type Child } from './dom';
import { changeText, durationText, measuredCell, measuredText, words } from './format';
import { intervalPlot } from './interval_plot';
import { kConditions, timingConditions } from './timing_conditions';

/** What the flow lost: questions answered less well, or nats a token of a text. */
function lostCell(task: Task): HTMLElement {
  if (task.loss_difference !== undefined) {
    const loss = { value: task.loss_difference, low: task.loss_low, high: task.loss_high };
    return element('td', { class: 'number', title: 'nats a token of text above dense attention' }, measuredText('loss', loss));
  }
  const lost = task.lost !== undefined && task.gained !== undefined ? `−${task.lost} +${task.gained}` : '–';
  return element('td', { class: 'number', title: 'questions answered less well than by dense attention, and better' }, lost);
}

function taskRow(task: Task): HTMLElement {
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, task.counted === false ? `${task.name} (not in the mean)` : task.name),
    element('td', { class: 'number' }, String(task.tokens)),
    element('td', { class: 'number' }, String(task.samples)),
    element('td', { class: 'number' }, measuredCell('accuracy', { value: task.accuracy, low: task.low, high: task.high })),
    element(
      'td',
      { class: 'number' },
      measuredCell('accuracy', { value: task.dense_accuracy, low: task.dense_low, high: task.dense_high }),
    ),
    element('td', { class: 'number' }, changeText('accuracy', task.accuracy - task.dense_accuracy)),
    lostCell(task),
    element('td', { class: 'plot' }, intervalPlot(task)),
  );
}

function taskTable(stage: string, tasks: Task[]): HTMLElement {
  const caption = `Tasks of stage ${stage}: right by parts, or of texts what is kept, in %, with 95% intervals`;
  return scrollable(
    caption,
    element(
      'table',
      {},
      element('caption', {}, caption),
      tableHead('Task', 'Tokens', 'Samples', 'Flow (%)', 'Dense (%)', 'Change', 'Lost, gained', '0–100%: ● flow ■ dense'),
      element('tbody', {}, ...tasks.map(taskRow)),
    ),
  );
}

/** What else a stage says of itself: numbers and words, in a line. */
function otherDetails(stage: Stage): Child {
  const told = Object.entries(stage.details)
    .filter(([key, value]) => !kConditions.includes(key) && (typeof value === 'number' || typeof value === 'string'))
    .map(([key, value]) => `${words(key)} ${typeof value === 'number' ? Number(value.toPrecision(4)) : value}`);
  return told.length > 0 && element('p', { class: 'muted' }, told.join(' · '));
}

export function stageList(evaluation: Evaluation): HTMLElement {
  const list = element('ol', { class: 'stages' });
  for (const stage of evaluation.stages) {
    const { tasks } = stage.details;
    list.append(
      element(
        'li',
        {},
        element(
          'p',
          {},
          element('strong', {}, stage.stage),
          ' ',
          element('span', { class: `status stage-${stage.status}` }, stage.status),
          stage.seconds > 0 && element('span', { class: 'muted' }, ` ${durationText(stage.seconds)}`),
        ),
        stage.message && element('p', { class: 'message' }, stage.message),
        ...timingConditions(stage),
        otherDetails(stage),
        tasks && tasks.length > 0 && taskTable(stage.stage, tasks),
      ),
    );
  }
  if (list.children.length === 0) list.append(element('li', { class: 'empty' }, 'No stage has ended.'));
  return list;
}
