-- What passed is judged once more by another model: its final.

ALTER TABLE submissions ADD COLUMN automatic INTEGER NOT NULL DEFAULT 0 CHECK (automatic IN (0, 1));
CREATE INDEX automatic_submissions ON submissions (id) WHERE automatic = 1;

CREATE TABLE finals (
  submission INTEGER PRIMARY KEY REFERENCES submissions (id),
  final INTEGER NOT NULL REFERENCES submissions (id),
  CHECK (final <> submission)
) STRICT;
CREATE INDEX finals_by_final ON finals (final);
