#!/usr/bin/env bash
# Pretends to charge a card. `key` is the same for every attempt: a real payment service would get it as its idempotency
# key, and charge once.
read -r arguments
[ -n "${EFFECTS:-}" ] && jq -r .key <<<"$arguments" >>"$EFFECTS"
sleep "${CHARGE_S:-0}"
jq -c '{charge: ("ch_" + .card), cents: (.cents | tostring)}' <<<"$arguments"
