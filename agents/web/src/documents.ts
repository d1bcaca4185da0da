// The documents of the API below /v1, as far as the page reads them.

export interface Measured {
  value: number;
  low?: number | null;
  high?: number | null;
  unit?: string;
}

export interface Settings {
  model?: string;
  device?: string;
  suite?: string;
  [key: string]: unknown;
}

/** Of the last verdict: judged once more, by questions that nobody could know before. */
export interface Confirmation {
  state: 'queued' | 'running' | 'done' | 'failed';
  agent: string;
  automatic: boolean;
  /** Which one it is of its model, device and suite: intervals are wider for that. */
  tries: number;
  /** So many times the samples of the suite. */
  factor: number;
  seed: string | null;
  /** Its verdict, once it is done. */
  status: string | null;
  message: string;
  hint: string;
  created: string;
  finished: string | null;
  metrics: Record<string, Measured>;
  /** The judged score less the confirmed one. */
  flattered: Measured | null;
}

/** The same flow on the model that judges what passed once more: a submission of its own. */
export interface Final {
  id: number;
  settings: Settings;
  status: string;
  /** What its confirmation says, once it is done. */
  confirmed: string | null;
  /** And was not refuted. */
  passed: boolean;
  /** As confirmed or, without that, as judged. */
  metrics: Record<string, Measured>;
}

export interface Summary {
  id: number;
  agent: string;
  name: string;
  status: string;
  created: string;
  updated: string;
  parents: number[];
  settings: Settings;
  metrics: Record<string, Measured>;
  /** Older servers do not tell of it. */
  confirmation?: Confirmation | null;
  /** The same flow with the same settings, whose verdict this one shares. */
  same_as?: number | null;
  /** Missing where no model judges what passed once more. */
  final?: Final | null;
  /** What this one is the final of. */
  final_of?: number | null;
}

/** What one model says of a flow. */
export interface Judgement {
  id: number;
  model: string | null;
  status: string;
  score: Measured | null;
}

export interface Finalist {
  agent: string;
  name: string;
  first: Judgement;
  final: Judgement;
}

/** Where the models that judge first and at last disagree. */
export interface FinalsComparison {
  flows: number;
  passed_both: number;
  /** Kendall's tau of the scores of what passed on both. */
  agreement: number | null;
  reversed: { better_by_final: Finalist; better_by_first: Finalist }[];
  reversed_total: number;
  divided: Finalist[];
  divided_total: number;
}

export interface Page {
  submissions: Summary[];
  next: string;
  total?: number; // on the first page
}

export interface FrontPoint {
  submission: Summary;
  /** Of the metric: the score. */
  value: number;
  speed: number;
  basis: 'judged' | 'confirmed';
}

export interface Metric extends Measured {
  name: string;
  task?: string;
  tokens?: number;
}

export interface Task {
  name: string;
  tokens: number;
  samples: number;
  accuracy: number;
  low: number;
  high: number;
  dense_accuracy: number;
  dense_low: number;
  dense_high: number;
  lost?: number;
  gained?: number;
  p_value?: number;
  /** Of a text: nats a token above dense attention. `accuracy` is then what the flow keeps of a token's probability. */
  loss_difference?: number;
  loss_low?: number | null;
  loss_high?: number | null;
  /** False where dense attention answers too little for the task to tell flows apart. */
  counted?: boolean;
}

/** Of a GPU while a flow was timed; missing figures are null. */
export interface Clocks {
  samples: number;
  sm_mhz: number;
  sm_mhz_low: number;
  sm_mhz_limit: number;
  memory_mhz: number;
  held_by: string[];
  other_processes: number | null;
}

export interface Stage {
  stage: string;
  status: string;
  seconds: number;
  message: string;
  details: {
    tasks?: Task[];
    mass?: number[];
    /** Of stage speed; null where it is not known, and missing in older evaluations. */
    quiet?: boolean | null;
    others_busy?: number | null;
    cores?: number | null;
    waited?: number;
    clocks?: Clocks | null;
    [key: string]: unknown;
  };
}

export interface Artifact {
  name: string;
  media_type: string;
  size: number;
}

export interface Evaluation {
  id: number;
  attempt: number;
  worker: string;
  started: string;
  finished: string | null;
  outcome: string;
  status: string | null;
  message: string;
  hint: string;
  stages: Stage[];
  metrics: Metric[];
  artifacts: Artifact[];
}

export interface Submission extends Summary {
  script: string;
  notes: string;
  content_hash: string;
  evaluation: Evaluation | null;
}

export interface GraphNode {
  id: number;
  op: string;
  stage: string;
  type: string;
  shape: string;
  inputs: number[];
  /** The whole line: "%3 = min %2 over token  [dim 64]". */
  text: string;
}

export interface FlowGraph {
  nodes: GraphNode[];
  /** What the cache stage keeps of each page, and the value that it is. */
  fields: { name: string; type: string; shape: string; node: number }[];
  /** Its static patterns; evaluations before there were any have none. */
  patterns?: FlowPattern[];
}

export interface FlowPattern {
  text: string;
  role: 'alone' | 'around' | 'beside';
  layers: number;
  /** Where KV heads see different keys: this is of those whose number modulo `heads` is `head`. Older evaluations have neither. */
  head?: number;
  heads?: number;
  /** The length of the sequence that the numbers are of. */
  tokens: number;
  kept: number;
  any_size: string;
  pages_read: number;
  dense_prefill: boolean;
  blind: number;
  /** Share of the pairs of dense attention. */
  area: number;
  /** Whether `area` is counted, not drawn from samples. Older evaluations do not say so. */
  area_exact?: boolean;
  /** The same of each cell of a picture, row by row up to the diagonal. */
  shares: number[][];
}

export interface DiffLine {
  kind: 'context' | 'added' | 'removed';
  old: number | null;
  new: number | null;
  text: string;
}

/** Mean accuracy of one flow less that of another on the same questions, with its 95% interval. */
export interface Paired {
  tasks: number;
  difference: number;
  low: number;
  high: number;
  p_value: number;
}

export interface Diff {
  from: Summary | null;
  to: Summary;
  hunks: { header: string; lines: DiffLine[] }[];
  unified: string;
  settings: { key: string; from: unknown; to: unknown }[];
  metrics: { name: string; task?: string; tokens?: number; from: number | null; to: number | null }[];
  /** Of `to` beside `from`. Older servers have none. */
  paired?: Paired | null;
}

export interface HarnessEvent {
  sequence: number;
  time: string;
  submission: number | null;
  kind: string;
  data: Record<string, unknown>;
}
