"""The views of whoever asks: lists of runs to which they have given a name."""

from __future__ import annotations

from holdfast.http.call import Call, Given
from holdfast.http.reader import read_query
from holdfast.http.refusals import Refusal
from holdfast.http.runs import RunsQuery
from holdfast.store.views import View
from holdfast.wire import answers
from holdfast.wire import views as wire
from holdfast.wire.paths import path_of


async def views(call: Call) -> Given:
    return Given(wire.Views([_shown(one) for one in await call.desk.views.list(call.who)]))


async def save(call: Call) -> Given:
    """Save a view. What is no list of runs is refused here, and not each time that somebody opens it."""
    given: wire.SaveView = call.body
    if not given.query.isascii():
        raise Refusal("invalid", "a query is ASCII: encode other characters as in a URL", place="query")
    read_query(given.query.encode(), RunsQuery, has_tags=True)
    return Given(_shown(await call.desk.views.save(call.who, View(given.name, given.query))))


async def remove(call: Call) -> Given:
    return Given(answers.Removed(await call.desk.views.remove(call.who, call.id("view"))))


def _shown(view: View) -> wire.View:
    return wire.View(view.name, path_of(view.name), view.query)
