#!/bin/sh
# What `make demo` shows: two trips, booked with the `holdfast` command in a folder of their own.
set -eu

demo=$(mktemp -d)
trap 'rm -rf "$demo"' EXIT
export HOLDFAST_STORE="sqlite:///$demo/demo.db" BOOKING_LEDGER="$demo/bookings.db"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n'; printf '%s\n' "$@"; }
run() { printf '%s$ %s%s\n' "$bold" "$(printf '%s ' "$@" | sed 's/ $//; s/{[^}]*}/'"'&'"'/')" "$plain"; "$@"; }

say "A trip is a flight, a hotel and a car, each booked over HTTP. The hotel's first" \
    "answer is lost on the way. It is asked again with the same key, and books once."
run holdfast run examples/trip.py:book_trip --id oslo --input '{"city": "Oslo"}'

say "There are no cars in Venice, and asking again would not help. So the trip is" \
    "undone, newest first: flight and hotel are cancelled (exit code 1)."
run holdfast run examples/trip.py:book_trip --id venice --input '{"city": "Venice"}' || [ $? -eq 1 ]

say "Both runs are in the store."
run holdfast ps
say "What happened, and when?"
run holdfast show venice

say "Next: docs/tutorial.md kills a run with kill -9 and lets it go on; docs/undo.md" \
    "explains how a run is undone. More programs are in examples/."
