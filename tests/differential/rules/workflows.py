"""Declarations: nodes write them when they start, callers that send signals read them, and the leader removes old
ones."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.model import Declaration
from tests.differential.questions import ALL, WORKFLOWS, Asking, nodes


class Workflows(Asking):
    @rule(workflow=st.sampled_from(WORKFLOWS), digest=st.sampled_from(("old", "new")))
    def declare(self, workflow: tuple[str, str], digest: str) -> None:
        """Do the part of `register` that needs no file lock."""
        name, version = workflow
        one = Declaration("default", name, version, f"{name}@{version}", "shop", digest, "{}", "{}", "{}")
        self._tick()
        self.spec.declare(name, version, digest)
        for subject in self.subjects:
            self._do(subject.declare(one))

    @rule(data=st.data())
    def forget_workflows(self, data: st.DataObject) -> None:
        epoch, before = data.draw(st.sampled_from(self.epochs)), self.spec.now - 0.5
        self._tick()
        wanted = self.spec.forget_workflows(epoch, before)
        self._same(wanted, lambda s: s.store.retention.forget_workflows(epoch, s.at(self.spec, before), ALL))

    @rule(limit=st.sampled_from((1, ALL)), node=nodes, code=st.sampled_from(("a", "other")))
    def read_workflows(self, limit: int, node: str, code: str) -> None:
        self._alike("workflows", lambda s: s.store.workflows.workflows(limit))
        self._alike("rivals", lambda s: s.store.workflows.rivals(code, node), ordered=False)

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data())
    def read_what_a_run_takes(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from([*self._runs(), "unknown"]))
        self._alike("declared", lambda s: s.store.workflows.declared(run_id))
