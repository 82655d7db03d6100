"""Every step, workflow, signal and update that this process knows. The decorators fill it; schedulers and agents read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from holdfast.codec.exceptions import add_module
from holdfast.errors import DefinitionError, UnknownWorkflow

if TYPE_CHECKING:
    from holdfast.workflow.every import ScheduleLine
    from holdfast.workflow.signal import Signal
    from holdfast.workflow.step import Step
    from holdfast.workflow.update import Update
    from holdfast.workflow.when import ComposedLine
    from holdfast.workflow.workflow import Workflow

steps: dict[str, Step[Any, Any]] = {}
workflows: dict[tuple[str, str], Workflow[Any, Any]] = {}
"""By name and version."""
schedules: dict[str, ScheduleLine] = {}
"""By name."""
composed: dict[str, ComposedLine] = {}
"""Composed triggers, by name."""
signals: WeakSet[Signal[Any]] = WeakSet()
"""Every signal that some code still has, and could wait for."""
updates: WeakSet[Update[Any, Any]] = WeakSet()
"""Every update that some code still has, and could serve."""
_edition = 0
_signals_made = 0


def edition() -> int:
    """Return a number that changes whenever something is declared. A node that has published what is declared must then
    publish it again."""
    return _edition


def signals_made() -> int:
    """Return how many signals and updates this process ever made."""
    return _signals_made


def _changed() -> None:
    global _edition  # noqa: PLW0603  there is one registry in a process
    _edition += 1


def register_signal(signal: Signal[Any], *, lasting: bool) -> None:
    """Register a signal. It is `lasting` if it is made in a module, and not by a function at each call."""
    global _signals_made  # noqa: PLW0603  there is one registry in a process
    signals.add(signal)
    _signals_made += 1
    if lasting:
        _changed()


def register_update(update: Update[Any, Any], *, lasting: bool) -> None:
    """Register an update. It is `lasting` if it is made in a module, and not by a function at each call."""
    global _signals_made  # noqa: PLW0603  there is one registry in a process
    updates.add(update)
    _signals_made += 1
    if lasting:
        _changed()


def register_step(step: Step[Any, Any]) -> None:
    _admit(steps.get(step.name), step)
    steps[step.name] = step


def register_workflow(workflow: Workflow[Any, Any]) -> None:
    key = (workflow.name, workflow.version)
    _admit(workflows.get(key), workflow)
    workflows[key] = workflow


def register_schedule(line: ScheduleLine) -> None:
    """Accept a line, or the same one again, which is a reload. Two lines need two names."""
    known = schedules.get(line.name)
    if known is not None and _is_another(known, line):
        raise DefinitionError(
            f"{line.place}: there is a schedule {line.name!r} already, in {known.place}: give one of them every(name=…)"
        )
    schedules[line.name] = line
    _changed()


def register_composed(line: ComposedLine) -> None:
    """Do the same for a composed trigger."""
    known = composed.get(line.name)
    if known is not None and _is_another(known, line):
        raise DefinitionError(
            f"{line.place}: there is a trigger {line.name!r} already, in {known.place}: give one of them when(name=…)"
        )
    composed[line.name] = line
    _changed()


def _is_another(known: ScheduleLine | ComposedLine, line: ScheduleLine | ComposedLine) -> bool:
    """True if two lines of one name are not the same line, loaded again."""
    is_loaded_once = known.unit is line.unit or known.module != line.module
    return is_loaded_once and known.place != line.place


def find_workflow(name: str) -> Workflow[Any, Any]:
    """Return the newest version of a workflow, by its full name, or by the last part of it if only one has that."""
    found = {full for full, _ in workflows if full == name}
    found = found or {full for full, _ in workflows if full.endswith("." + name)}
    if not found:
        known = ", ".join(sorted({full for full, _ in workflows})) or "none"
        raise UnknownWorkflow(f"no workflow is called {name!r} here; known: {known}")
    if len(found) > 1:
        raise UnknownWorkflow(f"{name!r} may be {' or '.join(sorted(found))}: give the full name")
    (full,) = found
    return max((w for (n, _), w in workflows.items() if n == full), key=lambda w: version_key(w.version))


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts versions as people read them: 2 before 10, 1.9 before 1.10."""
    parts = version.replace("-", ".").split(".")
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _admit(
    known: Step[Any, Any] | Workflow[Any, Any] | None, new: Step[Any, Any] | Workflow[Any, Any]
) -> None:
    """Accept a new function, or the same one again, which is a reload. Refuse another one of the same name: it would
    take over the runs of the first."""
    if known is not None and not new.place.is_again(known.place):
        raise DefinitionError(
            f"{new.name!r} is defined twice, in {known.place.shown} and in {new.place.shown}: give one of them name=…"
        )
    add_module(new.fn.__module__, new.place.module)
    if known is None or new.place.code is not known.place.code:
        _changed()
