-- The rows a batch of hops is made of, as types: an array of rows costs the client less than half of what one array a
-- column does.

CREATE TYPE holdfast.begun_run AS (
    id text, namespace text, workflow text, version text, priority integer, fence integer, input bytea, digest bytea,
    tags text, parent_id text, parent_n integer, deadline double precision, at double precision,
    state text, output bytea, error text, ended double precision);

CREATE TYPE holdfast.owned_run AS (id text, fence integer);

CREATE TYPE holdfast.ended_step AS (
    run_id text, n integer, fence integer, state text, output bytea, error text, at double precision, seq integer);

CREATE TYPE holdfast.delivered_step AS (run_id text, n integer, seq integer);

CREATE TYPE holdfast.issued_step AS (
    run_id text, n integer, key text, kind text, name text, lane integer, state text, priority integer,
    ready_at double precision, leased integer, attempts_max integer, timeout_s double precision, input bytea,
    digest bytea, retry text, after_seq integer);

CREATE TYPE holdfast.closed_run AS (
    id text, fence integer, state text, output bytea, error text, at double precision);
