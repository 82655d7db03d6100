"""`python -m tests.mutation.play 300` plays seeds of the simulation up to the first that finds something."""

import sys

from tests.simulation.runner import quietly
from tests.simulation.simulation import simulate


def main(count: int) -> int:
    quietly()
    for seed in range(count):
        if broken := simulate(seed).broken:
            print(f"seed {seed}: {broken[0]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
