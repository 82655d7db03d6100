"""What was logged, for people and for scripts."""

from __future__ import annotations

from holdfast.logs import LEFT_OUT, LogInfo
from holdfast.terminal.lines import print_words
from holdfast.terminal.output import Object

COLOURS = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bright_red"}
LEVEL_CELLS = 8


def log_object(run_id: str, info: LogInfo) -> Object:
    found: Object = {
        "at": info.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": info.level.lower() or None,
        "logger": info.logger,
        "message": info.message,
        "run": run_id,
        "step": info.step,
        "attempt": info.attempt,
        "stream": info.stream,
    }
    if info.twin:
        found["twin"] = True
    if info.traceback is not None:
        found["traceback"] = info.traceback
    return found


def print_log(info: LogInfo) -> None:
    """Print a line for people: when, how important, which step, and what. Further lines of the same message are
    indented."""
    if info.logger == LEFT_OUT:
        print_words(f"  {where(info)} {info.message}", dim=True)
        return
    print_words(info.at.astimezone().strftime("%H:%M:%S.%f")[:-3], dim=True, end=False)
    colour = COLOURS.get(info.level)
    print_words(f" {info.stream or info.level:<{LEVEL_CELLS}} ", colour, end=False)
    print_words(f"{where(info)} ", bold=True, end=False)
    if info.logger:
        print_words(f"{info.logger}: ", dim=True, end=False)
    text = info.message if info.traceback is None else f"{info.message}\n{info.traceback}"
    print_words(text, colour if info.level != "DEBUG" else None)


def where(info: LogInfo) -> str:
    """Say who has logged it: the step, and the attempt if it is not the first, or the workflow."""
    if info.step is None:
        return "workflow"
    more = [f"attempt {info.attempt}"] if info.attempt != 1 else []
    more += ["twin"] if info.twin else []
    return f"{info.step} ({', '.join(more)})" if more else info.step
