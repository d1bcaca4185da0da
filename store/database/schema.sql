-- The whole schema, version 7. A new database is made by this file, an older one is brought here by migrations/.
-- Times are microseconds since 1970 in UTC.

CREATE TABLE agents (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL CHECK (role IN ('agent', 'admin')),
  token_salt BLOB NOT NULL,
  token_hash BLOB NOT NULL,          -- BLAKE2b of the token's secret, keyed with the salt
  quota INTEGER NOT NULL CHECK (quota >= 0),  -- new submissions, trials with seeds and confirmations, in any 24 hours
  served INTEGER NOT NULL DEFAULT 0, -- the evaluation that was claimed last: who waits longest is next
  created INTEGER NOT NULL
) STRICT;

CREATE TABLE submissions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent INTEGER NOT NULL REFERENCES agents (id),
  name TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'passed', 'rejected_static', 'incorrect_numerical',
    'below_threshold', 'timeout', 'runtime_error', 'cancelled')),
  priority INTEGER NOT NULL,
  content_hash BLOB NOT NULL UNIQUE, -- BLAKE2b of script and settings
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  first_finished INTEGER,            -- never cleared, not even while it is judged again
  judged INTEGER REFERENCES evaluations (id),  -- the last evaluation with a verdict
  notes TEXT NOT NULL,
  settings TEXT NOT NULL,            -- a JSON object, keys sorted
  script TEXT NOT NULL,
  model TEXT GENERATED ALWAYS AS (settings ->> '$.model') VIRTUAL,
  device TEXT GENERATED ALWAYS AS (settings ->> '$.device') VIRTUAL,
  suite TEXT GENERATED ALWAYS AS (settings ->> '$.suite') VIRTUAL,
  fingerprint BLOB,                  -- of the flow that the script turned out to be; null until it is known
  same_as INTEGER REFERENCES submissions (id),  -- the same flow with the same settings, whose verdict it shares
  automatic INTEGER NOT NULL DEFAULT 0 CHECK (automatic IN (0, 1))  -- a final that the server made: counts in no quota
) STRICT;
CREATE INDEX submissions_of_agent ON submissions (agent, created);
CREATE INDEX automatic_submissions ON submissions (id) WHERE automatic = 1;
CREATE INDEX submissions_by_status ON submissions (status);
CREATE INDEX submissions_finished ON submissions (first_finished) WHERE first_finished IS NOT NULL;
CREATE INDEX submissions_by_run ON submissions (model, device, suite);
CREATE INDEX submissions_by_fingerprint ON submissions (fingerprint) WHERE fingerprint IS NOT NULL;
CREATE INDEX submissions_of_same ON submissions (same_as) WHERE same_as IS NOT NULL;

CREATE TABLE parents (
  submission INTEGER NOT NULL REFERENCES submissions (id),
  position INTEGER NOT NULL,
  parent INTEGER NOT NULL REFERENCES submissions (id),
  PRIMARY KEY (submission, position),
  UNIQUE (parent, submission),
  CHECK (parent < submission)        -- so ancestry has no cycles, and parents come first in order of ids
) STRICT, WITHOUT ROWID;

CREATE TABLE evaluations (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  trial INTEGER REFERENCES trials (id),  -- with a seed of its own that was judged
  attempt INTEGER NOT NULL,          -- from 1, of the submission, of the trial or of the confirmation
  worker TEXT NOT NULL,
  started INTEGER NOT NULL,
  finished INTEGER,
  outcome TEXT CHECK (outcome IN ('judged', 'failed', 'expired', 'cancelled')),
  verdict TEXT CHECK (verdict IN ('passed', 'rejected_static', 'incorrect_numerical', 'below_threshold', 'timeout',
    'runtime_error', 'cancelled')),  -- null if another attempt followed
  message TEXT NOT NULL DEFAULT '',
  hint TEXT NOT NULL DEFAULT '',
  seed TEXT NOT NULL DEFAULT '',     -- of its questions, where it may be told; that of a server is secret
  confirmation INTEGER REFERENCES confirmations (id) CHECK (trial IS NULL OR confirmation IS NULL),  -- both null: the submission
  CHECK ((finished IS NULL) = (outcome IS NULL))
) STRICT;
CREATE UNIQUE INDEX evaluations_of_job ON evaluations (submission, coalesce(trial, 0), coalesce(confirmation, 0), attempt);

CREATE TABLE stage_results (
  evaluation INTEGER NOT NULL REFERENCES evaluations (id),
  position INTEGER NOT NULL,
  stage TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('passed', 'failed', 'skipped')),
  seconds REAL NOT NULL,
  message TEXT NOT NULL,
  details TEXT NOT NULL,             -- JSON
  PRIMARY KEY (evaluation, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE metrics (
  evaluation INTEGER NOT NULL REFERENCES evaluations (id),
  name TEXT NOT NULL,
  task TEXT NOT NULL,                -- empty: of the whole evaluation
  length INTEGER NOT NULL,           -- tokens, 0: of all lengths
  value REAL NOT NULL,
  low REAL,
  high REAL,
  unit TEXT NOT NULL,
  PRIMARY KEY (evaluation, name, task, length)
) STRICT, WITHOUT ROWID;
CREATE INDEX metrics_by_name ON metrics (name, task, length, value);

CREATE TABLE artifacts (
  evaluation INTEGER NOT NULL REFERENCES evaluations (id),
  name TEXT NOT NULL,
  media_type TEXT NOT NULL,
  size INTEGER NOT NULL,             -- before it was capped
  bytes BLOB NOT NULL,
  PRIMARY KEY (evaluation, name)
) STRICT;

CREATE TABLE queue (
  id INTEGER PRIMARY KEY,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  trial INTEGER REFERENCES trials (id),  -- with a seed of its own
  agent INTEGER NOT NULL REFERENCES agents (id),
  priority INTEGER NOT NULL,
  available INTEGER NOT NULL,        -- not before
  tries INTEGER NOT NULL DEFAULT 0,  -- attempts that failed
  evaluation INTEGER REFERENCES evaluations (id),  -- of the lease, null while it waits
  lease_owner TEXT,
  lease_expiry INTEGER,
  confirmation INTEGER REFERENCES confirmations (id) CHECK (trial IS NULL OR confirmation IS NULL),  -- both null: the submission
  CHECK ((evaluation IS NULL) = (lease_owner IS NULL) AND (evaluation IS NULL) = (lease_expiry IS NULL))
) STRICT;
CREATE UNIQUE INDEX queue_of_submission ON queue (submission) WHERE trial IS NULL AND confirmation IS NULL;
CREATE UNIQUE INDEX queue_of_trial ON queue (trial) WHERE trial IS NOT NULL;
CREATE UNIQUE INDEX queue_of_confirmation ON queue (confirmation) WHERE confirmation IS NOT NULL;
CREATE UNIQUE INDEX queue_of_lease ON queue (evaluation) WHERE evaluation IS NOT NULL;
CREATE INDEX queue_leases ON queue (agent) WHERE evaluation IS NOT NULL;

-- Flows and confirmations that had ended without a verdict and were asked for again.
CREATE TABLE resubmissions (
  agent INTEGER NOT NULL REFERENCES agents (id),
  time INTEGER NOT NULL,
  submission INTEGER NOT NULL REFERENCES submissions (id)
) STRICT;
CREATE INDEX resubmissions_of_agent ON resubmissions (agent, time);

CREATE TABLE events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  submission INTEGER REFERENCES submissions (id),
  kind TEXT NOT NULL,
  data TEXT NOT NULL                 -- JSON
) STRICT;

CREATE TABLE idempotency_keys (
  agent INTEGER NOT NULL REFERENCES agents (id),
  key TEXT NOT NULL,
  request_hash BLOB NOT NULL,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  created INTEGER NOT NULL,
  PRIMARY KEY (agent, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created);

CREATE TABLE commits (
  submission INTEGER PRIMARY KEY REFERENCES submissions (id),
  hash TEXT NOT NULL,
  noted INTEGER REFERENCES evaluations (id)  -- whose metrics the note in git holds
) STRICT;

-- Passed submissions judged once more, by questions that nobody could know when they were handed in: one for each verdict.
CREATE TABLE confirmations (
  id INTEGER PRIMARY KEY,
  submission INTEGER NOT NULL REFERENCES submissions (id),
  judged INTEGER NOT NULL UNIQUE REFERENCES evaluations (id),  -- the verdict that it confirms
  agent INTEGER NOT NULL REFERENCES agents (id),  -- who asked for it; whose submission it is, if the server did
  automatic INTEGER NOT NULL CHECK (automatic IN (0, 1)),  -- the server asked for it: counts in no quota
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed')),  -- failed: it came to no verdict
  tries INTEGER NOT NULL CHECK (tries > 0),  -- which one it is, of those with the same model, device and suite
  factor INTEGER NOT NULL CHECK (factor > 0),  -- so many times the samples of the suite
  seed BLOB NOT NULL UNIQUE CHECK (length(seed) = 32),  -- of its questions; secret until it is done
  evaluation INTEGER REFERENCES evaluations (id),  -- that ended it
  created INTEGER NOT NULL,
  finished INTEGER,
  CHECK ((finished IS NULL) = (state IN ('queued', 'running'))),
  CHECK (evaluation IS NULL OR finished IS NOT NULL),
  CHECK (state <> 'done' OR evaluation IS NOT NULL)
) STRICT;
CREATE INDEX confirmations_of_submission ON confirmations (submission);
CREATE INDEX confirmations_of_agent ON confirmations (agent, created);
CREATE INDEX confirmations_of_evaluation ON confirmations (evaluation) WHERE evaluation IS NOT NULL;

-- What passed, and the same script with the settings of another model, by which it is judged once more.
CREATE TABLE finals (
  submission INTEGER PRIMARY KEY REFERENCES submissions (id),
  final INTEGER NOT NULL REFERENCES submissions (id),
  CHECK (final <> submission)
) STRICT;
CREATE INDEX finals_by_final ON finals (final);

-- Experiments: scripts that are tried with one goal and the same settings.
CREATE TABLE studies (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent INTEGER NOT NULL REFERENCES agents (id),
  name TEXT NOT NULL,
  goal TEXT NOT NULL,
  settings TEXT NOT NULL,            -- of the submissions of all its trials: a JSON object, keys sorted
  state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
  created INTEGER NOT NULL,
  UNIQUE (agent, name)
) STRICT;
CREATE INDEX studies_of_agent ON studies (agent, created);

-- A trial ends by the verdict of its submission, by one of its own if it has a seed, or by what its agent tells; after that it
-- never changes.
CREATE TABLE trials (
  id INTEGER PRIMARY KEY,
  study INTEGER NOT NULL REFERENCES studies (id),
  number INTEGER NOT NULL CHECK (number >= 0),  -- in its study, from 0
  agent INTEGER NOT NULL REFERENCES agents (id),  -- who added it
  submission INTEGER NOT NULL REFERENCES submissions (id),
  parameters TEXT NOT NULL,          -- a JSON object, keys sorted
  seed INTEGER CHECK (seed >= 0),    -- what it is judged by, together with the server's secret; null: not by itself
  state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'complete', 'failed', 'pruned')),
  told INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),  -- ended by its agent
  evaluation INTEGER REFERENCES evaluations (id),  -- that ended it
  created INTEGER NOT NULL,
  started INTEGER,
  finished INTEGER,
  UNIQUE (study, number),
  CHECK ((finished IS NULL) = (state IN ('waiting', 'running'))),
  CHECK (state <> 'waiting' OR started IS NULL),
  CHECK (state <> 'running' OR started IS NOT NULL),
  CHECK (told = 0 OR (finished IS NOT NULL AND evaluation IS NULL)),
  CHECK (evaluation IS NULL OR finished IS NOT NULL),
  CHECK (state NOT IN ('complete', 'pruned') OR told = 1 OR evaluation IS NOT NULL)
) STRICT;
CREATE INDEX trials_of_submission ON trials (submission);
CREATE INDEX followers_of_submission ON trials (submission) WHERE seed IS NULL AND finished IS NULL;
CREATE INDEX trials_by_state ON trials (study, state);
CREATE INDEX trials_of_agent ON trials (agent, created);
CREATE INDEX trials_of_evaluation ON trials (evaluation) WHERE evaluation IS NOT NULL;

CREATE TABLE told_values (
  trial INTEGER NOT NULL REFERENCES trials (id),
  name TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (trial, name)
) STRICT, WITHOUT ROWID;

-- Idempotency keys: the trials that a request added are `count` from `first` on.
CREATE TABLE trial_requests (
  study INTEGER NOT NULL REFERENCES studies (id),
  key TEXT NOT NULL,
  request_hash BLOB NOT NULL,
  first INTEGER NOT NULL,
  count INTEGER NOT NULL CHECK (count > 0),
  created INTEGER NOT NULL,
  PRIMARY KEY (study, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX trial_requests_by_age ON trial_requests (created);
