"""Spans, by OpenTelemetry's API. This is the only module that knows it. The program's SDK decides where spans go.

A span is open while something happens: a start is written, an attempt runs, a request is answered. None is open while a run
waits. How an attempt ended is said when it has ended, and the span of a run is made then. Spans carry names and numbers, and never a payload or the
message of an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.model import TRACE_TAG, NewRun
from holdfast.namespaces import bare

HEADER = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()

Value = str | int | bool
Attributes = Mapping[str, Value]


def _within(parent: str | None) -> Context:
    """Return the context of a span that stands in a header or a tag. Without one, a new trace begins: whatever happens to
    be current in a task of ours is not the reason for what it does."""
    return Context() if parent is None else _PROPAGATOR.extract({HEADER: parent}, Context())


def current() -> str | None:
    """Return the current span as a header has it. None if there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(HEADER)


def enter(parent: str) -> None:
    """Make a span of another process the current one, for the rest of this thread or task."""
    context.attach(_within(parent))


class Attempted:
    """The span of one attempt."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, outcome: str, error: BaseException | None = None) -> None:
        """Say how the attempt ended. Of its error, the class alone: a message may have anything in it."""
        self._span.set_attribute("holdfast.outcome", outcome)
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Spans:
    def __init__(self) -> None:
        self._tracer = trace.get_tracer("holdfast")

    # --- callers ------------------------------------------------------------------------------------------------------

    @contextmanager
    def starting(self, run: NewRun) -> Iterator[NewRun]:
        """Open a span while a run is started. Yield the run with its trace."""
        attributes = {"holdfast.run": run.id, "holdfast.workflow": bare(run.workflow)}
        with self._span(f"start {bare(run.workflow)}", SpanKind.PRODUCER, attributes):
            yield self.tagged(run)

    def tagged(self, run: NewRun) -> NewRun:
        """Return the run with the current span as its trace."""
        text = current()
        if text is None:
            return run
        return msgspec.structs.replace(run, tags={**run.tags, TRACE_TAG: text})

    @contextmanager
    def sending(self, what: str, attributes: Attributes, to: Sequence[str] = ()) -> Iterator[Sent]:
        """Open a span while a signal, an update or an event is sent. It has links to the traces of the runs that get it."""
        with self._span(what, SpanKind.PRODUCER, attributes) as span:
            sent = Sent(span)
            sent.link(to)
            yield sent

    # --- over HTTP ----------------------------------------------------------------------------------------------------

    def headers(self) -> dict[str, str]:
        """Return what a request carries so that its receiver goes on with the trace."""
        text = current()
        return {} if text is None else {HEADER: text}

    @contextmanager
    def serving(self, parent: str, name: str, attributes: Attributes) -> Iterator[Span]:
        """Open a span while a request that carries a trace is answered."""
        with self._span(name, SpanKind.SERVER, attributes, _within(parent)) as span:
            yield span

    # --- agents and schedulers ----------------------------------------------------------------------------------------

    def attempt(self, parent: str | None, name: str, attributes: Attributes) -> Attempted:
        """Begin the span of an attempt, and make it current for the rest of this task."""
        within = _within(parent)
        span = self._tracer.start_span(name, within, SpanKind.CONSUMER, attributes)
        context.attach(trace.set_span_in_context(span, within))
        return Attempted(span)

    def ended(
        self, parent: str | None, name: str, attributes: Attributes, since: float, until: float
    ) -> None:
        """Make the span of a run that has ended, from its beginning to its end."""
        span = self._tracer.start_span(
            name, _within(parent), SpanKind.INTERNAL, attributes, start_time=_nanoseconds(since)
        )
        if attributes.get("holdfast.state") != "succeeded":
            span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(max(since, until)))

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: Attributes, within: Context | None = None
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name, within, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


class Sent:
    """The span of something that is being sent."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def link(self, traces: Sequence[str]) -> None:
        """Add links to other traces."""
        for text in traces:
            link = Link(trace.get_current_span(_within(text)).get_span_context())
            if link.context.is_valid:
                self._span.add_link(link.context, link.attributes)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def attempt_attributes(**given: Any) -> dict[str, Value]:
    """Return attributes whose names begin with `holdfast.`. What is None is left out."""
    return {f"holdfast.{name}": value for name, value in given.items() if value is not None}
