-- Experiments: a script may be tried many times, beside the one verdict that it has as a submission.

CREATE TABLE studies (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent INTEGER NOT NULL REFERENCES agents (id),
  name TEXT NOT NULL,
  goal TEXT NOT NULL,
  settings TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
  created INTEGER NOT NULL,
  UNIQUE (agent, name)
) STRICT;
CREATE INDEX studies_of_agent ON studies (agent, created);

CREATE TABLE trials (
  id INTEGER PRIMARY KEY,
  study INTEGER NOT NULL REFERENCES studies (id),
  number INTEGER NOT NULL CHECK (number >= 0),
  agent INTEGER NOT NULL REFERENCES agents (id),
  submission INTEGER NOT NULL REFERENCES submissions (id),
  parameters TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'complete', 'failed', 'pruned')),
  told INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),
  evaluation INTEGER REFERENCES evaluations (id),
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
CREATE INDEX trials_by_state ON trials (study, state);
CREATE INDEX trials_of_agent ON trials (agent, created);

CREATE TABLE told_values (
  trial INTEGER NOT NULL REFERENCES trials (id),
  name TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (trial, name)
) STRICT, WITHOUT ROWID;

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
