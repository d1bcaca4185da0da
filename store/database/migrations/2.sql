-- What lists are filtered by was hidden inside the settings: give it names and an index.

ALTER TABLE submissions ADD COLUMN model TEXT GENERATED ALWAYS AS (settings ->> '$.model') VIRTUAL;
ALTER TABLE submissions ADD COLUMN device TEXT GENERATED ALWAYS AS (settings ->> '$.device') VIRTUAL;
ALTER TABLE submissions ADD COLUMN suite TEXT GENERATED ALWAYS AS (settings ->> '$.suite') VIRTUAL;
CREATE INDEX submissions_by_run ON submissions (model, device, suite);
