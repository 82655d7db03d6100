"""The pages, as rows of the table of routes. What may be done from a page stands in `deeds.py`: those rows come from the
API's own."""

from __future__ import annotations

from holdfast.access import Act
from holdfast.http.call import Route
from holdfast.http.pages import (
    acts,
    agents,
    alerts,
    asks,
    assets,
    audit,
    backlog,
    callbacks,
    events,
    finds,
    gates,
    limits,
    overview,
    quarantine,
    run,
    runs,
    schedules,
    sessions,
    starts,
    triggers,
    views,
    workflows,
)
from holdfast.http.pages.deeds import DEED_ROUTES

# fmt: off
PAGES: tuple[Route, ...] = (
    Route("GET", "/", Act.READ, "What needs a person now?", overview.overview, is_page=True),
    Route("GET", "/runs", Act.READ, "Which runs, and what does each wait for?", runs.runs, query=runs.RunsPageQuery,
          has_tags=True, is_page=True),
    Route("POST", "/views", Act.READ, "Give a list of runs a name", views.save, is_page=True),
    Route("POST", "/views/{view}/remove", Act.READ, "Remove a view", views.remove, is_page=True),
    Route("GET", "/runs/{run}", Act.READ, "What is this run doing, and why?", run.run, query=run.RunPageQuery, is_page=True),
    Route("GET", "/runs/{run}/graph.svg", Act.READ, "The workflow of a run as a picture", run.graph, is_page=True),
    Route("GET", "/start", Act.START, "Start a run by a form", starts.start_page, query=starts.StartQuery, is_page=True),
    Route("POST", "/start", Act.START, "Start a run by a form", starts.start, is_page=True),
    Route("GET", "/asks", Act.SEE_ASKS, "What do people want of me?", asks.asks, query=asks.AsksPageQuery, is_page=True),
    Route("GET", "/asks/{ask}", Act.SEE_ASKS, "A question, and the form that answers it", asks.ask, is_page=True),
    Route("POST", "/asks/{ask}", Act.ANSWER, "Answer a question by its form", asks.answer, is_page=True),
    Route("GET", "/alerts", Act.READ, "What were people notified about?", alerts.alerts, query=alerts.AlertsPageQuery,
          is_page=True),
    Route("GET", "/workflows", Act.READ_WORKFLOWS, "Which workflows are there?", workflows.workflows, is_page=True),
    Route("GET", "/workflows/{name}", Act.READ_WORKFLOWS, "Does this code work well?", workflows.workflow, is_page=True),
    Route("GET", "/schedules", Act.READ, "What comes next, and what was missed?", schedules.schedules, is_page=True),
    Route("GET", "/schedules/{schedule}", Act.READ, "What became of its times?", schedules.schedule, is_page=True),
    Route("GET", "/triggers", Act.READ, "What waits for the rest of its parts?", triggers.triggers, is_page=True),
    Route("GET", "/occasions/{occasion}", Act.READ, "What has arrived, and what is missing?", triggers.occasion, is_page=True),
    Route("GET", "/events", Act.READ, "What came in, and who took it?", events.events, query=events.EventsPageQuery, is_page=True),
    Route("GET", "/events/{source}/{event}", Act.READ, "What became of this event?", events.event, is_page=True),
    Route("GET", "/callbacks", Act.READ, "What do runs wait for from other systems?", callbacks.callbacks,
          query=callbacks.CallbacksPageQuery, is_page=True),
    Route("GET", "/backlog", Act.READ, "Is there work that nobody can do?", backlog.backlog, is_page=True),
    Route("GET", "/agents", Act.READ, "Who works, and how well?", agents.agents, query=agents.AgentsPageQuery, is_page=True),
    Route("GET", "/gates", Act.READ, "What keeps steps from beginning?", gates.gates, is_page=True),
    Route("GET", "/limits", Act.READ, "What is full, and who waits for it?", limits.limits, is_page=True),
    Route("GET", "/limits/{limit}", Act.READ, "Who has it, and who waits for it?", limits.limit, is_page=True),
    Route("GET", "/quarantine", Act.READ, "Which steps may kill their agents?", quarantine.quarantine, is_page=True),
    Route("GET", "/acts", Act.READ, "What was done to many runs?", acts.acts, is_page=True),
    Route("GET", "/acts/{act}", Act.READ, "What would an act do, or what did it do?", acts.act, query=acts.ActPageQuery,
          is_page=True),
    Route("GET", "/audit", Act.AUDIT, "Who did what?", audit.audit, query=audit.AuditQuery, is_page=True),
    Route("GET", "/tokens", Act.ADMINISTER, "Who may?", audit.tokens, is_page=True),
    Route("GET", "/find", Act.READ, "Which runs and workflows have this in their name?", finds.find, query=finds.FindQuery, is_page=True),
    Route("GET", "/more", Act.KNOW_SELF, "Which pages are there?", finds.more, is_page=True),
    *DEED_ROUTES,
    Route("GET", "/signin", None, "Sign in with a token", sessions.sign_in_page, query=sessions.SignInQuery, is_page=True),
    Route("POST", "/signin", None, "Sign in with a token", sessions.sign_in, is_page=True),
    Route("POST", "/signout", Act.KNOW_SELF, "Sign out", sessions.sign_out, is_page=True),
    Route("GET", "/static/{file}", None, "Styles, scripts and fonts", assets.asset, is_page=True),
)
# fmt: on
