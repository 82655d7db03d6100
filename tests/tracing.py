"""The spans of this process, as OpenTelemetry's SDK gets them. A process has one provider of spans for all its life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class OpenSpans(SpanProcessor):
    """Knows the spans of Holdfast that have begun and not ended. Frameworks make spans of their own as soon as a process has
    a provider, and give them other names while they are open. So a span is known by its id."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}

    @property
    def names(self) -> list[str]:
        return list(self._open.values())

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if is_ours(span):
            self._open[id_of(span)] = span.name

    def on_end(self, span: ReadableSpan) -> None:
        if is_ours(span):
            del self._open[id_of(span)]


EXPORTER, OPEN = InMemorySpanExporter(), OpenSpans()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(OPEN)  # first, so that a span which was seen is not open
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
trace.set_tracer_provider(PROVIDER)
tracer = trace.get_tracer("tests")


class Seen:
    """The spans that ended since the beginning of a test."""

    def all(self) -> list[ReadableSpan]:
        return list(EXPORTER.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.all())


def is_ours(span: ReadableSpan) -> bool:
    """If Holdfast made it, and not a framework, a library or a test."""
    return span.instrumentation_scope is not None and span.instrumentation_scope.name == "holdfast"


def id_of(span: ReadableSpan) -> int:
    found = span.get_span_context()
    assert found is not None
    return found.span_id


def trace_id(span: ReadableSpan) -> int:
    found = span.get_span_context()
    assert found is not None
    return found.trace_id


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def attribute(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(f"holdfast.{name}")


@contextmanager
def caller(name: str = "caller") -> Iterator[Callable[[], int]]:
    """A span of whoever uses Holdfast. Yields a function that returns its trace's id."""
    with tracer.start_as_current_span(name) as span:
        yield lambda: span.get_span_context().trace_id
