"""The code that a node has loaded, by stored names: the same step is another one in each of the node's namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.model import DEFAULT_NAMESPACE
from holdfast.namespaces import BETWEEN, Namespaces, parted, stored
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow


def stored_steps(steps: Mapping[str, Step[Any, Any]], namespaces: Namespaces) -> Mapping[str, Step[Any, Any]]:
    """Return steps by stored names. In `default`, these are their own names, and nothing stands between."""
    return steps if namespaces.only == DEFAULT_NAMESPACE else StoredSteps(steps, namespaces)


def stored_workflows(
    workflows: Mapping[tuple[str, str], Workflow[Any, Any]], namespaces: Namespaces
) -> Mapping[tuple[str, str], Workflow[Any, Any]]:
    """Return workflows by stored name and version."""
    return workflows if namespaces.only == DEFAULT_NAMESPACE else StoredWorkflows(workflows, namespaces)


class StoredSteps(Mapping[str, Step[Any, Any]]):
    """Steps by stored names. Their own names and those of their dependencies are stored ones, too."""

    def __init__(self, steps: Mapping[str, Step[Any, Any]], namespaces: Namespaces) -> None:
        self._steps, self._namespaces = steps, namespaces
        self._has_default = DEFAULT_NAMESPACE in namespaces
        self._within: dict[str, tuple[Step[Any, Any], Step[Any, Any]]] = {}
        """By stored name: the step as it is declared, and as it is in the namespace."""

    def __getitem__(self, name: str) -> Step[Any, Any]:
        if BETWEEN not in name:
            if self._has_default:
                return self._steps[name]
            raise KeyError(name)
        namespace, rest = parted(name)
        if namespace not in self._namespaces or namespace == DEFAULT_NAMESPACE:
            raise KeyError(name)
        declared, known = self._steps[rest], self._within.get(name)
        if known is None or known[0] is not declared:
            known = self._within[name] = (declared, declared.within(namespace))
        return known[1]

    def __iter__(self) -> Iterator[str]:
        return (one for name in self._steps for one in self._namespaces.each(name))

    def __len__(self) -> int:
        return len(self._steps) * len(self._namespaces.names)


class StoredWorkflows(Mapping[tuple[str, str], Workflow[Any, Any]]):
    """Workflows by stored name and version."""

    def __init__(
        self, workflows: Mapping[tuple[str, str], Workflow[Any, Any]], namespaces: Namespaces
    ) -> None:
        self._workflows, self._namespaces = workflows, namespaces

    def __getitem__(self, code: tuple[str, str]) -> Workflow[Any, Any]:
        namespace, name = parted(code[0])
        if namespace not in self._namespaces or stored(namespace, name) != code[0]:
            raise KeyError(code)
        return self._workflows[name, code[1]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((one, version) for name, version in self._workflows for one in self._namespaces.each(name))

    def __len__(self) -> int:
        return len(self._workflows) * len(self._namespaces.names)
