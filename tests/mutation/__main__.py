"""Changes the source of the product in one place at a time, and looks whether a test notices.

`make mutants` draws a sample of the mutants. Each one is tried in a copy of the source: first by the tests of what is
changed, then by 300 seeds of the simulation, then by tests of the roles. It is dead at the first failure; a test that
hangs counts as one. A mutant that cannot be imported, or whose SQL a database refuses, is invalid and says nothing.
A survivor shows a claim that no test makes. Write that test. If nothing can notice the change, add it to
equivalents.toml, with the reason."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from tests import postgres
from tests.mutation.mutants import Mutant, all_mutants, draw
from tests.mutation.reviewed import entry, reviewed
from tests.mutation.stages import End, Trials, Verdict

EXAMPLES = """examples:
  python -m tests.mutation --sample 20 --seed 7               another sample
  python -m tests.mutation --in decider --in store/sqlite     only these files
  python -m tests.mutation --only policy.py:302:15:compare    one mutant again
  python -m tests.mutation --list --in breaker.py             what there is, without trying it

exit code: 0 if no mutant survived but reviewed ones, 1 if one did, 2 if the command is wrong"""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="try N mutants, drawn (default: all that are named)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which sample is drawn (default 0)")
    parser.add_argument(
        "--in",
        dest="places",
        action="append",
        default=[],
        metavar="PATH",
        help="only files whose path begins so",
    )
    parser.add_argument(
        "--kind", action="append", default=[], help="only this kind of change, such as and-term"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="ID", help="only the mutant with this id"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="all tests of these folders, not only the nearest"
    )
    parser.add_argument("--jobs", dest="processes", type=int, default=1, metavar="N", help="try N at a time")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    parser.add_argument(
        "--entry", action="store_true", help="print the mutants as entries of equivalents.toml"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the summary")
    asked = parser.parse_args(arguments)
    if not (asked.sample or asked.places or asked.kind or asked.only or asked.list):
        parser.error("all mutants would take a day: say --sample N, --in PATH, --kind KIND or --only ID")
    return asked


def chosen(asked: argparse.Namespace) -> list[Mutant]:
    mutants = all_mutants()
    if unknown := set(asked.only) - {mutant.id for mutant in mutants}:
        raise SystemExit(f"no mutant is called {', '.join(sorted(unknown))}: --list prints their ids")
    found = [
        mutant
        for mutant in mutants
        if (not asked.only or mutant.id in asked.only)
        and (not asked.places or mutant.file.startswith(tuple(asked.places)))
        and (not asked.kind or mutant.change.kind in asked.kind)
    ]
    return found if asked.sample is None else draw(found, asked.sample, asked.seed)


def main() -> int:
    asked = parse()
    mutants, known = chosen(asked), reviewed()
    if asked.list or asked.entry:
        for mutant in mutants:
            mark = "  (reviewed)" if mutant.key in known else ""
            print(entry(mutant) + "\n" if asked.entry else f"{mutant.id}  {mutant.what}{mark}")
        return 0
    begun = time.monotonic()
    found = try_all([mutant for mutant in mutants if mutant.key not in known], asked)
    skipped = [mutant for mutant in mutants if mutant.key in known]
    survivors = sorted(mutant.id for mutant, verdict in found.items() if verdict.end is End.SURVIVED)
    summary: dict[str, Any] = {
        "mutants": len(mutants),
        "dead": dict(Counter(one.stage for one in found.values() if one.end is End.DEAD).most_common()),
        "invalid": sum(one.end is End.INVALID for one in found.values()),
        "reviewed": len(skipped),
        "survived": survivors,
        "seed": asked.seed,
        "seconds": round(time.monotonic() - begun),
    }
    if asked.json:
        verdicts = {
            mutant.id: {"where": mutant.change.where, "what": mutant.what, **_as_dict(verdict)}
            for mutant, verdict in sorted(found.items(), key=lambda item: item[0].id)
        }
        print(json.dumps({**summary, "verdicts": verdicts}, indent=2, ensure_ascii=False))
    else:
        print_summary(summary)
    return 1 if survivors else 0


def try_all(mutants: list[Mutant], asked: argparse.Namespace) -> dict[Mutant, Verdict]:
    """Try each mutant, and print a line for each as soon as it is known."""
    found: dict[Mutant, Verdict] = {}
    with postgres.locked_folder(hasty=True) as folder:
        server = postgres.given_server() or postgres.join(folder)
        trials = Trials(server.url, thorough=asked.thorough)
        with ThreadPoolExecutor(asked.processes) as pool:
            tried = {pool.submit(trials.run, mutant): mutant for mutant in mutants}
            try:
                for future in as_completed(tried):
                    mutant, verdict = tried[future], future.result()
                    found[mutant] = verdict
                    print(line(len(found), len(mutants), mutant, verdict), file=sys.stderr, flush=True)
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                trials.stop()
                print("interrupted: these are the mutants that were tried", file=sys.stderr)
    return found


def line(number: int, of: int, mutant: Mutant, verdict: Verdict) -> str:
    how = {End.DEAD: f"dead by {verdict.stage}: {verdict.by}", End.INVALID: f"invalid: {verdict.by}"}
    end = how.get(verdict.end, "SURVIVED")
    return f"{number:3}/{of}  {mutant.id}  {mutant.what}\n         {end}  ({verdict.seconds:.0f} s)"


def print_summary(summary: dict[str, Any]) -> None:
    dead = ", ".join(f"{count} by {stage}" for stage, count in summary["dead"].items())
    print(f"{summary['mutants']} mutants in {summary['seconds']} s, seed {summary['seed']}")
    print(f"  dead      {sum(summary['dead'].values())}  ({dead})")
    print(f"  invalid   {summary['invalid']}")
    print(f"  reviewed  {summary['reviewed']}, not tried")
    print(f"  survived  {len(summary['survived'])}")
    for one in summary["survived"]:
        print(f"    {one}")


def _as_dict(verdict: Verdict) -> dict[str, Any]:
    return {"end": verdict.end, "stage": verdict.stage, "by": verdict.by, "seconds": verdict.seconds}


if __name__ == "__main__":
    sys.exit(main())
