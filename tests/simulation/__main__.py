"""`python -m tests.simulation --seeds 1000 --jobs 2`, `--seed 1234 --trace`, `--mutants`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from typing import Any

from tests.simulation.matrix import OWN, SHARED, matrix, without_own
from tests.simulation.remembered import remember
from tests.simulation.runner import (
    REACHED_WITHIN,
    NotAsPlanted,
    Report,
    Survived,
    count_all,
    find_mutants,
    hunt,
    kills_alone,
    play_all,
    quietly,
    replay_command,
)
from tests.simulation.schedule import keep, kept_schedules
from tests.simulation.simulation import replay, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play one seed")
    parser.add_argument(
        "--keep", metavar="WHAT", help="with --seed: keep its schedule, with what it found, for the tests"
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happens")
    parser.add_argument(
        "--seeds", type=int, default=200, help="play this many seeds, and the kept schedules (default 200)"
    )
    parser.add_argument(
        "--plain", action="store_true", help="play only what all seeds draw from: no part, no kept schedule"
    )
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--jobs", dest="processes", type=int, default=1, help="processes to play in")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="switch planted bugs on, and find them")
    parser.add_argument(
        "--census",
        type=int,
        metavar="N",
        help="with --mutants: how many of N fresh seeds find each, and by which check",
    )
    parser.add_argument(
        "--matrix",
        type=int,
        nargs="?",
        const=60,
        metavar="N",
        help="with --mutants: all checks that find each in N seeds (default 60), and the invariants that find none alone",
    )
    parser.add_argument(
        "--remember", action="store_true", help="with --mutants: keep which seeds find them, for the tests"
    )
    asked = parser.parse_args()
    quietly()
    if asked.mutants is not None and asked.remember:
        lost = remember([mutant.name for mutant in find_mutants(asked.mutants)], asked.processes)
        print("\n".join(f"no seed found {name}" for name in lost))
        return 1 if lost else 0
    if asked.mutants is not None and asked.matrix:
        return show_matrix(asked.mutants, asked.matrix, asked.processes, as_json=asked.json)
    if asked.mutants is not None and asked.census:
        return count_mutants(asked.mutants, asked.census, asked.processes, as_json=asked.json)
    if asked.mutants is not None:
        return mutants(asked.mutants, as_json=asked.json)
    if asked.seed is not None:
        return one(asked.seed, keep_as=asked.keep, trace=asked.trace, plain=asked.plain, as_json=asked.json)
    seeds = range(asked.first, asked.first + asked.seeds)
    return many(seeds, asked.processes, plain=asked.plain, as_json=asked.json)


def one(seed: int, *, keep_as: str | None, trace: bool, plain: bool, as_json: bool) -> int:
    result = simulate(seed, print if trace and not as_json else None, plain=plain)
    if keep_as:
        keep(result.schedule, keep_as)
    if as_json:
        print(
            json.dumps(
                {"seed": seed, "hash": result.hash, "broken": result.broken, "runs": dict(result.runs)}
            )
        )
    else:
        print(
            f"seed {seed}  hash {result.hash}  {result.commits} commits  {result.virtual_s:.1f} s of virtual time"
        )
        for broken in result.broken:
            print(f"broken: {broken}")
    return 1 if result.broken else 0


def many(seeds: range, processes: int, *, plain: bool, as_json: bool) -> int:
    begun, shown = time.monotonic(), set[int]()

    def show_progress(report: Report) -> None:
        for seed in sorted(report.broken.keys() - shown):  # a long run may never come to its end
            shown.add(seed)
            print(f"broken by seed {seed}: {report.broken[seed][0]}", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            rate = report.seeds / (time.monotonic() - begun)
            print(
                f"\r{report.seeds} of {len(seeds)} seeds, {rate:.0f}/s, {len(report.broken)} broken ",
                end="",
                file=sys.stderr,
            )

    report = Report()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # SIGINT does not reach what a script runs behind
    try:
        play_all(seeds, processes, show_progress, report, plain=plain)
    except KeyboardInterrupt:  # whoever stops a long run wants to know what it found
        print(f"stopped after {report.seeds} of {len(seeds)} seeds", file=sys.stderr)
    for schedule in kept_schedules() if not plain else ():
        report.add(replay(schedule))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    found = report.as_json()
    found["wall_s"] = round(time.monotonic() - begun, 1)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_report(report, found)
    too_rare = report.never and len(seeds) >= REACHED_WITHIN and not plain
    return 1 if report.broken or too_rare else 0


def print_report(report: Report, found: dict[str, object]) -> None:
    for what, count in sorted(report.sometimes.items(), key=lambda entry: -entry[1]):
        print(f"{count:8}  {what}")
    for what in report.never:
        print(f"   never  {what}")
    print(f"{report.seeds} seeds, {found['virtual_hours']} virtual hours, {report.commits} commits checked, "
          f"{found['seeds_per_core_s']} seeds/s on one core, {found['wall_s']} s")  # fmt: skip
    print("runs: " + ", ".join(f"{count} {state}" for state, count in report.runs.most_common()))
    for seed, broken in sorted(report.broken.items()):
        print(f"broken by seed {seed}: {broken[0]}\n  replay: {replay_command(seed)}")
    print(f"{len(report.broken)} violations")


def mutants(names: list[str], *, as_json: bool) -> int:
    died, survived = {}, []
    for mutant in find_mutants(names):
        try:
            found = hunt(mutant)
        except (Survived, NotAsPlanted) as fall:
            survived.append(mutant.name)
            if not as_json:
                print(fall)
        else:
            died[mutant.name] = {"seeds": found.number, "within": mutant.within, "by": found.broken[:100]}
            if not as_json:
                print(
                    f"{mutant.name:32} died at seed {found.number:4} of {mutant.within:4}: {found.broken[:100]}",
                    flush=True,
                )
    if as_json:
        print(
            json.dumps(
                {"killed": len(died), "of": len(died) + len(survived), "survived": survived, "died": died},
                indent=2,
            )
        )
    else:
        print(f"{len(died)} of {len(died) + len(survived)} mutants died")
    return 1 if survived else 0


def count_mutants(names: list[str], seeds: int, processes: int, *, as_json: bool) -> int:
    """Print for each mutant how many fresh seeds find it, and the table of checks and mutants."""
    counted: dict[str, dict[str, Any]] = {}
    for name, found in count_all([mutant.name for mutant in find_mutants(names)], seeds, processes):
        counted[name] = found
        if not as_json:
            print(f"{name:36} {found['found']:5} of {found['of']}  {found['by']}", flush=True)
    only = kills_alone(counted)
    if as_json:
        print(json.dumps({"seeds": seeds, "mutants": counted, "killed_by_one_check": only}, indent=2))
    else:
        for check, killed in sorted(only.items()):
            print(f"only {check} kills {', '.join(killed)}")
    return 0 if all(found["found"] for found in counted.values()) else 1


def show_matrix(names: list[str], seeds: int, processes: int, *, as_json: bool) -> int:
    """Print for each mutant all checks that find it, then the invariants that find no mutant alone. Fail if one of these has
    no reason in `matrix.toml`."""
    found: dict[str, dict[str, int]] = {}
    for name, checks in matrix([mutant.name for mutant in find_mutants(names)], seeds, processes):
        found[name] = checks
        if not as_json:
            print(f"{name:44} {checks}", flush=True)
    alone = {name: next(iter(checks)) for name, checks in found.items() if len(checks) == 1}
    left = [] if names else [name for name in without_own(found) if name not in SHARED]
    wrong = [] if names else sorted(name for name, mutant in OWN.items() if alone.get(mutant) != name)
    if as_json:
        print(
            json.dumps(
                {"seeds": seeds, "found": found, "alone": alone, "without": left, "wrong": wrong}, indent=2
            )
        )
    else:
        for name, check in sorted(alone.items(), key=lambda entry: entry[1]):
            print(f"only {check} finds {name}")
        for check in without_own(found) if not names else []:
            print(f"{check} finds no mutant alone: {SHARED.get(check, 'and matrix.toml does not say why')}")
        for check in wrong:
            print(f"{OWN[check]} is not found by {check} alone, as matrix.toml says")
    return 1 if left or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
