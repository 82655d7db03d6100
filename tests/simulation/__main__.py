"""`python -m tests.simulation --seeds 1000 --jobs 2`, `--seed 1234 --trace`, `--mutants`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.simulation.runner import (
    REACHED_WITHIN,
    Report,
    Survived,
    find_mutants,
    hunt,
    kept_seeds,
    play_all,
    quietly,
    replay_command,
)
from tests.simulation.simulation import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happens")
    parser.add_argument(
        "--seeds", type=int, default=200, help="play this many seeds, and the kept ones (default 200)"
    )
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--jobs", dest="processes", type=int, default=1, help="processes to play in")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="switch planted bugs on, and find them")
    asked = parser.parse_args()
    quietly()
    if asked.mutants is not None:
        return mutants(asked.mutants, as_json=asked.json)
    if asked.seed is not None:
        return one(asked.seed, trace=asked.trace, as_json=asked.json)
    return many(range(asked.first, asked.first + asked.seeds), asked.processes, as_json=asked.json)


def one(seed: int, *, trace: bool, as_json: bool) -> int:
    result = simulate(seed, print if trace and not as_json else None)
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


def many(seeds: range, processes: int, *, as_json: bool) -> int:
    begun = time.monotonic()

    def show_progress(report: Report) -> None:
        if sys.stderr.isatty():
            rate = report.seeds / (time.monotonic() - begun)
            print(
                f"\r{report.seeds} of {len(seeds)} seeds, {rate:.0f}/s, {len(report.broken)} broken ",
                end="",
                file=sys.stderr,
            )

    report = play_all(seeds, processes, show_progress)
    for seed in kept_seeds():
        report.add(simulate(seed))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    found = report.as_json()
    found["wall_s"] = round(time.monotonic() - begun, 1)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_report(report, found)
    too_rare = report.never and len(seeds) >= REACHED_WITHIN
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
            count, broken = hunt(mutant)
        except Survived as fall:
            survived.append(mutant.name)
            if not as_json:
                print(fall)
        else:
            died[mutant.name] = {"seeds": count, "within": mutant.within, "by": broken[:100]}
            if not as_json:
                print(
                    f"{mutant.name:32} died at seed {count:4} of {mutant.within:4}: {broken[:100]}",
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


if __name__ == "__main__":
    sys.exit(main())
