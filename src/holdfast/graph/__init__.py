"""A workflow as a picture: read from its source before it runs, with or without the way that one run took.

`graph_of(workflow)` reads the source and executes nothing. `with_run(graph, …)` draws a run into it. `to_svg`,
`to_mermaid` and `to_text` draw it.
"""

from __future__ import annotations

from holdfast.graph.graph import Edge, EdgeKind, Graph, Kind, Node, Passage, RunPart
from holdfast.graph.mermaid import to_mermaid
from holdfast.graph.passage import with_run
from holdfast.graph.source import graph_of
from holdfast.graph.svg import to_svg
from holdfast.graph.text import to_text

__all__ = [
    "Edge",
    "EdgeKind",
    "Graph",
    "Kind",
    "Node",
    "Passage",
    "RunPart",
    "graph_of",
    "to_mermaid",
    "to_svg",
    "to_text",
    "with_run",
]
