"""What a remote agent that has keys does with the payloads of a store that is sealed and whose server has none."""

from __future__ import annotations

import os
from typing import TypeVar

from holdfast.environment import Environment
from holdfast.keyring import keys_here, sealed_by
from holdfast.store.answers import ClaimedStep
from holdfast.store.operations import Save, StepOp
from holdfast.store.sealed import Seal

Op = TypeVar("Op", bound=StepOp)


class SealedSteps:
    """Opens the steps that come sealed, and seals what is reported about them. If the server has keys, the steps come
    open, and their outcomes are sent open."""

    def __init__(self, environment: Environment) -> None:
        self._keys = keys_here(os.environ, environment.secret)
        self._sealed: set[tuple[str, int, int | None]] = set()

    def open(self, step: ClaimedStep) -> ClaimedStep:
        if self._keys is None or sealed_by(step.input) is None:
            return step
        self._sealed.add((step.run_id, step.n, step.fence))
        return Seal(self._keys.open, bytes).apply(step)  # type: ignore[no-any-return]

    def seal(self, op: Op) -> Op:
        if self._keys is None or (op.run_id, op.n, op.fence) not in self._sealed:
            return op
        return Seal(self._keys.seal, bytes).apply(op)  # type: ignore[no-any-return]

    def forget(self, op: StepOp) -> None:
        """Forget a step that was reported."""
        if type(op) is not Save:
            self._sealed.discard((op.run_id, op.n, op.fence))
