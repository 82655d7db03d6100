"""The other modules of the tests. pytest imports all of them before it runs the first test, and a node publishes what its
process has declared: with hundreds of workflows that are none of its business, starting a node takes a second.

So while the tests of one module run, the modules that it does not use are put away, with what they have declared.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast import Signal, Update
from holdfast.workflow import registry

OURS = frozenset({"tests", "examples", "bench"})
NAMED = re.compile(
    r"""\b(?:tests|examples|bench)(?:\.\w+)+"""  # in an import, or a string with the name of a program
    r"""|\bfrom\ ((?:tests|examples|bench)[\w.]*)\ import\ (?:\(([^)]*)\)|(.*))"""
)


def unused_by(module: ModuleType) -> list[str]:
    """Return the names of our modules that the tests of a module do not need."""
    ours = {name: one for name, one in sys.modules.items() if name.partition(".")[0] in OURS}
    loaded = {name for name, one in ours.items() if is_module(one)}
    used: set[str] = set()
    left = {module.__name__, *(name for name in loaded if serves(name, module.__name__))}
    while left:
        used |= left
        left = {name for one in left & ours.keys() for name in names_in(one)} - used
    return sorted(loaded - used)


def serves(conftest: str, module: str) -> bool:
    """True for a conftest of a folder that the module is in: the others serve neighbours."""
    folder, _, name = conftest.rpartition(".")
    return name == "conftest" and module.startswith(f"{folder}.")


def is_module(module: ModuleType) -> bool:
    """False for a package: the names of its modules need it."""
    return not hasattr(module, "__path__")


@cache
def names_in(module: str) -> frozenset[str]:
    """Return every name in the source of a module that may be one of our modules."""
    file = sys.modules[module].__file__
    text = "" if file is None else Path(file).read_text("utf-8")
    found: set[str] = set()
    for match in NAMED.finditer(text):
        package, many, few = match.groups()
        if package is None:
            parts = match[0].split(".")
            found |= {".".join(parts[:length]) for length in range(2, len(parts) + 1)}
        else:
            found |= {package, *(f"{package}.{word}" for word in re.findall(r"\w+", many or few))}
    return frozenset(found)


@contextmanager
def put_away(names: list[str]) -> Iterator[None]:
    """Hide modules, and what they declare, for as long as the block lasts."""
    modules = {name: sys.modules.pop(name) for name in names}
    steps = {name: one for name, one in registry.steps.items() if one.fn.__module__ in modules}
    workflows = {key: one for key, one in registry.workflows.items() if one.fn.__module__ in modules}
    values: list[Any] = [value for module in modules.values() for value in vars(module).values()]
    signals = {one for one in values if isinstance(one, Signal)}
    updates = {one for one in values if isinstance(one, Update)}
    for name in steps:
        del registry.steps[name]
    for key in workflows:
        del registry.workflows[key]
    composed = {name: one for name, one in registry.composed.items() if one.module in modules}
    for name in composed:
        del registry.composed[name]
    schedules = {name: one for name, one in registry.schedules.items() if one.module in modules}
    for name in schedules:
        del registry.schedules[name]
    registry.signals -= signals
    registry.updates -= updates
    registry._changed()
    yield
    sys.modules.update(modules)
    registry.steps.update(steps)
    registry.workflows.update(workflows)
    registry.schedules.update(schedules)
    registry.composed.update(composed)
    registry.signals |= signals
    registry.updates |= updates
    registry._changed()
