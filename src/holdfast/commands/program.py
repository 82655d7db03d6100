"""Imports the author's code, once. A command names it FILE.py, FILE.py:WORKFLOW, package.module or
package.module:WORKFLOW.

A file in a package is imported as a module of that package. Any other file is imported under its stem, with its folder
on the path, so that it finds its neighbours as with `python FILE.py`. So steps and workflows have the same names
whichever way they are loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TextIO

from holdfast.commands.errors import NotLoadable
from holdfast.errors import UnknownWorkflow
from holdfast.programs import dotted, package_root
from holdfast.terminal.lines import print_words
from holdfast.workflow import registry
from holdfast.workflow.workflow import Workflow


def find_workflow(target: str) -> Workflow[Any, Any]:
    """Return the workflow that `FILE[:WORKFLOW]` names."""
    place, name = split(target)
    module = load(place)
    here = _workflows(module)
    if not here:
        raise UnknownWorkflow(f"{place} has no workflow: mark an async function with @workflow")
    if name is None:
        if len({workflow.name for workflow in here.values()}) > 1:
            first = next(iter(here))
            raise UnknownWorkflow(
                f"{place} has several workflows ({', '.join(here)}): say which, as in {place}:{first}"
            )
        return registry.find_workflow(next(iter(here.values())).name)
    if name in here:
        return here[name]
    for workflow in here.values():
        if name in {workflow.name, workflow.name.rsplit(".", 1)[-1]}:
            return registry.find_workflow(workflow.name)
    raise UnknownWorkflow(f"{place} has no workflow {name!r}; it has {', '.join(here)}")


def load(place: str) -> ModuleType:
    """Import a file or a module. Raises NotLoadable, which names the line that is wrong."""
    warnings.showwarning = _show_warning
    if place.endswith(".py") or "/" in place or Path(place).exists():
        return _load_file(Path(place))
    return _load_module(place)


def split(target: str) -> tuple[str, str | None]:
    """Split a target into its file or module and its workflow. The workflow is None if it is not named."""
    place, colon, name = target.rpartition(":")
    if not colon:
        return target, None
    if not place or not name:
        raise NotLoadable(f"{target!r} names no workflow: write FILE.py:WORKFLOW")
    return place, name


def _workflows(module: ModuleType) -> dict[str, Workflow[Any, Any]]:
    """Return the workflows that the module defines itself, or those that it imports if it defines none."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Workflow)}
    own = {name: workflow for name, workflow in found.items() if workflow.fn.__module__ == module.__name__}
    return own or found


def _load_file(file: Path) -> ModuleType:
    if not file.exists():
        raise NotLoadable(f"there is no file {file}: check the path")
    if file.suffix != ".py" or not file.is_file():
        raise NotLoadable(f"{file} is not a Python file: name one that ends in .py")
    path = file.resolve()
    name, root = dotted(str(path)), package_root(path)
    known = sys.modules.get(name)
    if known is not None and _file(known) == path:
        return known
    before = set(sys.modules)
    if root == path.parent:
        module = _load_alone(name, path, file)
    else:
        module = _load_in_package(name, root, path, file)
    _refuse_mixture(path.parent, before, file)
    return module


def _load_alone(name: str, path: Path, file: Path) -> ModuleType:
    if name in sys.modules:
        known = _file(sys.modules[name])
        if known is None or known.parent not in _folders:
            raise NotLoadable(
                f"{file} cannot be imported as {name!r}, which is {known or 'Python itself'} already: rename the file"
            )
        raise NotLoadable(
            f"{file} cannot be imported as {name!r}, which is {_shown(known)} already: rename one of them, or put an empty "
            f"__init__.py beside each, and they are {known.parent.name}.{name} and {path.parent.name}.{name}"
        )
    _folders.add(path.parent)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise NotLoadable(_explain(error, file)) from error
    return module


def _load_in_package(name: str, root: Path, path: Path, file: Path) -> ModuleType:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if str(path.parent) not in sys.path:
        # For code that imports its neighbours without naming the package, as `python FILE.py` allows.
        sys.path.append(str(path.parent))
    module = None
    try:
        module = importlib.import_module(name)
        found = _file(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise NotLoadable(_explain(error, file)) from error
        found = _file(sys.modules.get(name.partition(".")[0]))
    except (Exception, SystemExit) as error:
        raise NotLoadable(_explain(error, file)) from error
    if module is None or found != path:
        raise NotLoadable(
            f"{file} is {name!r}, because of the __init__.py beside it; but that is {found or 'Python itself'} already: "
            f"rename the folder {root / name.partition('.')[0]}"
        )
    return module


_folders: set[Path] = set()
"""The folders of files that were imported under their stems. All these files share one space of names."""


def _refuse_mixture(folder: Path, before: set[str], file: Path) -> None:
    """Raise NotLoadable if a module of `folder` got another folder's module instead of its neighbour of that name."""
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        path, spec = _file(module), getattr(module, "__spec__", None)
        if path is None or path.parent != folder or spec is None or folder not in _folders:
            continue
        code = spec.loader.get_code(name) if hasattr(spec.loader, "get_code") else None
        for imported in () if code is None else code.co_names:
            known = _file(sys.modules.get(imported))
            if known is None or known.parent == folder or known.parent not in _folders:
                continue
            if (folder / f"{imported}.py").exists():
                raise NotLoadable(
                    f"{file} imports {imported}, which is {_shown(known)} already, and not the one beside it: "
                    "rename one of them, or make their folders packages (an empty __init__.py in each, and "
                    f"`from . import {imported}`)"
                )


def _file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).resolve()


def _load_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotLoadable(
                f"there is no module {name!r} and no such file: name a file as ./app.py, or install the module"
            ) from error
        raise NotLoadable(_explain(error, Path(name))) from error
    except (Exception, SystemExit) as error:
        raise NotLoadable(_explain(error, Path(name))) from error


def _explain(error: BaseException, file: Path) -> str:
    """Say where the author's code went wrong, and how."""
    if isinstance(error, SyntaxError):
        name = Path(error.filename or str(file))
        line = f", line {error.lineno}" if error.lineno else ""
        return f"{_shown(name)}{line}: {type(error).__name__}: {error.msg}"
    if isinstance(error, OSError) and error.__traceback__ and _line(error.__traceback__) is None:
        return f"cannot read {file}: {error.strerror or error}"
    place = _line(error.__traceback__)
    where = f"{_shown(place[0])}, line {place[1]}" if place else str(file)
    if isinstance(error, SystemExit):
        return f"{where}: it ends the process when it is imported: guard that with if __name__ == '__main__'"
    move = ""
    if isinstance(error, ModuleNotFoundError):
        move = f": install it for {sys.executable}"
    elif isinstance(error, ImportError) and "relative import" in str(error):
        move = ": name the module instead of the file, as in package.module:workflow"
    return f"{where}: {type(error).__name__}: {error}{move}"


def _line(trace: TracebackType | None) -> tuple[Path, int] | None:
    """Return the last line of a traceback that is the author's own: not ours, Python's or an installed package's."""
    ours = str(Path(__file__).parents[1])
    found = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((ours, "<")) and "site-packages" not in name and "/lib/python" not in name:
            found = Path(name), trace.tb_lineno
        trace = trace.tb_next
    return found


def _shown(file: Path) -> str:
    """Return the path as seen from the working folder."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print_words("warning: ", "yellow", end=False, err=True)
    # A warning that no line of code has caused, such as one from the garbage collector, comes from `sys`.
    place = "" if filename == "sys" else f"{_shown(Path(filename))}, line {lineno}: "
    print_words(f"{place}{message}", err=True)
