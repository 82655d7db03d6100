"""`python -m holdfast` is the `holdfast` command."""

import sys

from holdfast.commands import main

if __name__ == "__main__":
    sys.exit(main())
