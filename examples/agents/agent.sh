#!/usr/bin/env bash
# A whole agent for Holdfast, with curl and jq. It executes billing.charge, one step at a time: the program $CHARGE (or
# ./charge.sh beside this file) gets the arguments as JSON on standard input, and prints the result as JSON.
#
#   HOLDFAST_SERVER=https://holdfast.example HOLDFAST_TOKEN=hf_agent_… ./agent.sh
#
# The token goes to curl through a file descriptor: others on this host can read a command line.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
charge=${CHARGE:-$here/charge.sh}
agents=$HOLDFAST_SERVER/v1/agents

post() {  # post PATH BODY [SECONDS]: prints the answer; fails if there is none, or if it is a problem
  curl -sf --max-time "${3:-15}" -H 'Content-Type: application/json' --data-binary "$2" "$agents$1" \
    ${HOLDFAST_TOKEN:+-H @<(printf 'Authorization: Bearer %s\n' "$HOLDFAST_TOKEN")}
}

again() { sleep "0.$((RANDOM % 10))"; }  # not all agents at once, after a restart of the server

while :; do
  # Register: also after this agent was taken for gone. The lease is 30 s.
  agent=$(post "" '{"protocol": [1], "host": "shell", "groups": [{"name": "g", "steps": ["billing.charge"], "places": 1}]}' |
    jq -er .agent) || { again; continue; }
  echo "agent $agent" >&2
  turn=0 failures=0
  while [ "$failures" -lt 20 ]; do
    # Claim. This agent has no step now, and says so: whatever a lost answer gave it is handed back.
    turn=$((turn + 1))
    answer=$(post "/$agent/claim" "{\"turn\": $turn, \"free\": {\"g\": 1}, \"has\": [], \"wait_s\": 20}" 35)
    case $? in
      0) failures=0 ;;
      22) break ;;  # a problem: register anew
      *) failures=$((failures + 1)); again; continue ;;
    esac
    step=$(jq -c '.steps[0] // empty' <<<"$answer")
    [ -n "$step" ] || { [ "$(jq .leaving <<<"$answer")" = true ] && again; continue; }

    # Execute, and beat meanwhile, so that the lease lasts.
    beat=$(jq -c '{has: [[.run, .n, .fence]]}' <<<"$step")
    (while sleep 5; do post "/$agent/beat" "$beat" >/dev/null; done) &
    beating=$!
    if output=$(jq -c '.input + {key: .key}' <<<"$step" | "$charge") && jq -e . >/dev/null 2>&1 <<<"$output"; then
      report=$(jq -c --argjson output "$output" '{verb: "succeed", run, n, fence, secret, output: $output}' <<<"$step")
    else
      report=$(jq -c --arg said "${output:-the program failed}" \
        '{verb: "fail", run, n, fence, secret, error: {type: "ChargeFailed", message: $said}}' <<<"$step")
    fi
    kill "$beating" 2>/dev/null
    wait "$beating" 2>/dev/null

    # Report until there is an answer. It counts once: the fence decides.
    until post "/$agent/report" "{\"reports\": [$report]}" >/dev/null; do
      [ $? -eq 22 ] && break
      again
    done
  done
done
