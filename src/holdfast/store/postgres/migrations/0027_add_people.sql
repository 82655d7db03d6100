-- Asks: questions to people. The step of the kind `ask` waits, and its row is locked before that of the ask. `not_by` and
-- `plan` are JSON. `reached_at` is up to when reminders and escalation are done, and `next_at` is when there is something to do.
-- These rows go with their run.
CREATE TABLE holdfast.asks (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    namespace  text NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    n          integer NOT NULL,
    workflow   text NOT NULL,
    state      text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'answered', 'expired', 'withdrawn')),
    question   text NOT NULL,
    form       text NOT NULL,
    show       text NOT NULL,
    quorum     integer NOT NULL,
    not_by     text NOT NULL,
    plan       text NOT NULL,
    asked_at   timestamptz NOT NULL,
    expires_at timestamptz,
    reached_at timestamptz,
    next_at    timestamptz,
    ended_at   timestamptz,
    CONSTRAINT ended_has_time CHECK ((state = 'open') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX asks_step ON holdfast.asks (run_id, n);
CREATE INDEX asks_open ON holdfast.asks (asked_at, id) WHERE state = 'open';
CREATE INDEX asks_next ON holdfast.asks (next_at) WHERE state = 'open' AND next_at IS NOT NULL;
CREATE INDEX asks_ended ON holdfast.asks (ended_at) WHERE state <> 'open';

-- Who is asked, and what they answered. A team has a row, and so has each of its members who has answered or handed the
-- place over. These rows go with their run.
CREATE TABLE holdfast.ask_people (
    ask         text COLLATE "C" NOT NULL,
    who         text COLLATE "C" NOT NULL,
    since       timestamptz NOT NULL,
    through     text NOT NULL,
    hops        integer NOT NULL DEFAULT 0,
    handed_to   text,
    value       bytea,
    note        text NOT NULL DEFAULT '',
    via         text NOT NULL DEFAULT '',
    answered_at timestamptz,
    is_open     boolean NOT NULL DEFAULT true,
    PRIMARY KEY (ask, who),
    CONSTRAINT answered_has_value CHECK ((value IS NULL) = (answered_at IS NULL))
);
CREATE INDEX ask_inbox ON holdfast.ask_people (who, since, ask) WHERE is_open;

-- Whom the bearer of a token is, and which teams they are in, as JSON: ["person:anna", "team:finance"].
ALTER TABLE holdfast.tokens ADD COLUMN who text NOT NULL DEFAULT '[]';
