"""The one table of routes. Routing, authorisation, OpenAPI, the reference page and the authorisation matrix come from it.

Every row says what the identity must be allowed to do. A route that stands in no row does not exist, and paths are
exact: nothing is authorised by how an address looks.
"""

from __future__ import annotations

from holdfast.access import Act
from holdfast.http import operators as store
from holdfast.http import runs, schedules, streams
from holdfast.http.call import Route, Size
from holdfast.wire import answers, requests

MADE = {201: "made", 200: "it was there before"}
WAITED = {200: "the run", 304: "nothing has changed since the mark in If-None-Match"}
MARKED = {200: "done", 304: "nothing has changed since the mark in If-None-Match"}
STARTED = {201: "started", 200: "the same run had been started before"}
R = "/v1/runs/{run}"
S = "/v1/schedules/{schedule}"

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/runs", Act.START, "Start a run", runs.start, answers.Started, requests.Start,
          statuses=STARTED, size=Size.PAYLOAD, headers=("Idempotency-Key",)),
    Route("POST", "/v1/runs/batch", Act.START, "Start up to 1,000 runs, each answered by itself", runs.start_batch,
          answers.StartedItems, requests.Batch, size=Size.BATCH),
    Route("POST", "/v1/runs/ended", Act.FOLLOW, "Say which of up to 500 runs have ended, and wait for the first", runs.ended,
          answers.EndedRuns, requests.Ended, polls=True),
    Route("GET", "/v1/runs", Act.READ, "List runs, newest first", runs.runs, answers.Runs, query=runs.RunsQuery,
          has_tags=True),
    Route("GET", "/v1/runs/counts", Act.READ_STORE, "Count the runs of the store by state", runs.counts, answers.Counts),
    Route("GET", R, Act.FOLLOW, "Show a run with its payloads; with wait_s and If-None-Match, wait for a change", runs.run,
          answers.WholeRun, query=runs.RunQuery, statuses=WAITED, polls=True, headers=("If-None-Match",)),
    Route("GET", f"{R}/steps", Act.READ, "List the steps of a run", runs.steps, answers.Steps, query=runs.StepsQuery),
    Route("GET", f"{R}/steps/{{n}}", Act.READ, "Show a step", runs.step, answers.Step),
    Route("GET", f"{R}/attempts", Act.READ, "List the attempts of a run's steps that did not become outcomes", runs.attempts,
          answers.Attempts),
    Route("GET", f"{R}/journal", Act.READ, "List what was done to a run, newest first", runs.journal, answers.Journal,
          query=runs.LimitQuery),
    Route("GET", f"{R}/children", Act.READ, "List the children of a run", runs.children, answers.Runs),
    Route("GET", f"{R}/why", Act.READ, "Say what a run waits for, and what would move it", runs.why, answers.Why),
    Route("GET", f"{R}/logs", Act.READ, "List what a run and its steps have logged", runs.logs, answers.Lines,
          query=runs.LogsQuery),
    Route("GET", f"{R}/graph", Act.READ, "Draw the workflow of a run with the run's way in it", runs.graph, answers.Drawing),
    Route("POST", f"{R}/signals", Act.START, "Send a signal", runs.signal, answers.Sent, requests.Signal,
          statuses={202: "sent"}, size=Size.PAYLOAD),
    Route("POST", f"{R}/updates", Act.START, "Call an update, and wait for its answer", runs.update, answers.Reply,
          requests.Update, statuses={200: "answered", 202: "recorded, and not answered yet"}, size=Size.PAYLOAD, polls=True),
    Route("POST", f"{R}/cancel", Act.STEER, "Ask a run to cancel itself", runs.cancel, answers.State, requests.Cancel),
    Route("POST", f"{R}/hold", Act.STEER, "Stop a run until it is released", runs.hold, answers.State, requests.Noted),
    Route("POST", f"{R}/release", Act.STEER, "Let a held run go on", runs.release, answers.State, requests.Noted),
    Route("POST", f"{R}/retry", Act.STEER, "Try waiting steps at once, or go on with an ended run under a new id", runs.retry,
          answers.Started, requests.Nothing),
    Route("POST", f"{R}/skip", Act.STEER, "Count an undo that gave up as done by hand", runs.skip, answers.State, requests.Skip),
    Route("POST", f"{R}/fork", Act.STEER, "Start a new run from what this one recorded, with edits", runs.fork, answers.Forked,
          requests.Fork, statuses={201: "started"}, size=Size.PAYLOAD),
    Route("GET", "/v1/schedules", Act.READ, "List schedules, by name", schedules.schedules, answers.Schedules,
          query=schedules.SchedulesQuery),
    Route("POST", "/v1/schedules", Act.STEER, "Make a schedule", schedules.create, answers.Schedule, requests.NewSchedule,
          statuses=MADE, size=Size.PAYLOAD),
    Route("GET", S, Act.READ, "Show a schedule", schedules.schedule, answers.Schedule),
    Route("GET", f"{S}/preview", Act.READ, "List the next times of a schedule", schedules.preview, answers.Preview,
          query=schedules.PreviewQuery),
    Route("GET", f"{S}/fires", Act.READ, "List what became of the times of a schedule, newest first", schedules.fires,
          answers.Fires, query=schedules.FiresQuery),
    Route("POST", f"{S}/pause", Act.STEER, "Let a schedule decide nothing until it is resumed", schedules.pause,
          answers.Schedule, requests.Noted),
    Route("POST", f"{S}/resume", Act.STEER, "Let a paused schedule go on", schedules.resume, answers.Schedule, requests.Noted),
    Route("POST", f"{S}/run", Act.STEER, "Run a schedule now", schedules.run, answers.Fire, requests.RunNow),
    Route("POST", f"{S}/remove", Act.STEER, "Remove a schedule that somebody made", schedules.remove, answers.Schedule,
          requests.Noted),
    Route("GET", f"{S}/backfills", Act.READ, "List the newest backfills of a schedule", schedules.backfills, answers.Backfills),
    Route("POST", f"{S}/backfills", Act.STEER, "Run times of a schedule that have not run, or run them again",
          schedules.backfill, answers.BackfillAnswer, requests.NewBackfill,
          statuses={201: "begun", 200: "what it would do"}),
    Route("POST", f"{S}/backfills/{{backfill}}/stop", Act.STEER, "Stop a backfill", schedules.stop_backfill, answers.Backfill,
          requests.Nothing),
    Route("GET", "/v1/workflows", Act.READ_WORKFLOWS, "List the workflows that code has declared", store.workflows,
          answers.Workflows, statuses=MARKED, headers=("If-None-Match",)),
    Route("GET", "/v1/workflows/{name}", Act.READ_WORKFLOWS, "Show the versions of a workflow, with their schemas",
          store.workflow, answers.WorkflowVersions, statuses=MARKED, headers=("If-None-Match",)),
    Route("GET", "/v1/agents", Act.READ_STORE, "List the nodes that work on the store", store.agents, answers.Agents,
          query=store.EverythingQuery),
    Route("GET", "/v1/lanes", Act.READ_STORE, "List the lanes of steps, and how many steps wait in each", store.lanes,
          answers.Lanes),
    Route("GET", "/v1/backlog", Act.READ_STORE, "List the lanes in which steps wait, the oldest first", store.backlog,
          answers.Lanes),
    Route("GET", "/v1/holds", Act.READ, "List the holds of operators", store.holds, answers.Holds,
          needs_namespace=False),
    Route("POST", "/v1/holds", Act.STEER, "Hold all of a kind", store.add_hold, answers.HoldPlaced, requests.HoldPlace,
          statuses=MADE, needs_namespace=False),
    Route("POST", "/v1/holds/release", Act.STEER, "Let all of a kind go on after a hold", store.remove_hold, answers.Hold,
          requests.HoldPlace, needs_namespace=False),
    Route("GET", "/v1/breakers", Act.READ_STORE, "List the breakers of dependencies", store.breakers, answers.Breakers),
    Route("POST", "/v1/breakers/{name}/open", Act.STEER_STORE, "Open a breaker by hand", store.open_breaker, answers.Breaker,
          requests.Noted),
    Route("POST", "/v1/breakers/{name}/close", Act.STEER_STORE, "Close a breaker by hand", store.close_breaker,
          answers.Breaker, requests.Noted),
    Route("POST", "/v1/breakers/{name}/reset", Act.STEER_STORE, "Let the leader decide about a breaker again",
          store.reset_breaker, answers.Breaker, requests.Noted),
    Route("GET", "/v1/quarantine", Act.READ_STORE, "List what waits in quarantine, by fingerprint", store.quarantine,
          answers.Quarantine),
    Route("POST", "/v1/quarantine/{fingerprint}/release", Act.STEER_STORE, "Try the steps in quarantine again",
          store.release_quarantined, answers.Resolved, requests.Noted),
    Route("POST", "/v1/quarantine/{fingerprint}/skip", Act.STEER_STORE, "Go on as if the steps in quarantine had returned",
          store.skip_quarantined, answers.Resolved, requests.ResolveSkip, size=Size.PAYLOAD),
    Route("POST", "/v1/quarantine/{fingerprint}/fail", Act.STEER_STORE, "Let the steps in quarantine fail",
          store.fail_quarantined, answers.Resolved, requests.Noted),
    Route("GET", "/v1/alerts", Act.READ_STORE, "List alerts, newest first", store.alerts, answers.Alerts,
          query=store.AlertsQuery),
    Route("POST", "/v1/alerts/{alert}/clear", Act.STEER_STORE, "Clear an alert", store.clear_alert, answers.Cleared,
          requests.Nothing),
    Route("GET", "/v1/journal", Act.AUDIT, "List what was done to the store, newest first", store.journal, answers.Journal,
          query=store.JournalQuery),
    Route("GET", "/v1/stream", Act.READ, "Say when runs or lists of runs change, as server-sent events", streams.stream,
          query=streams.StreamQuery, headers=("Last-Event-ID",), media_type=streams.MEDIA_TYPE),
    Route("GET", "/v1/me", Act.KNOW_SELF, "Say who asks", store.me, answers.Me),
    Route("GET", "/v1/openapi.json", None, "Describe all of this as OpenAPI 3.1", store.openapi, dict),
    Route("GET", "/healthz", None, "Say that the server lives", store.healthz),
    Route("GET", "/readyz", None, "Say whether the server can answer requests now", store.readyz,
          statuses={200: "it can", 503: "it cannot"}),
    Route("GET", "/metrics", Act.READ_STORE, "Figures, as Prometheus reads them", store.metrics),
)
# fmt: on
