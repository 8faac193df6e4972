#!/bin/sh
# Asks a running server the three questions that idempotent jobs must answer: ten submissions under one key are one
# job, another payload under that key is refused, and a finished job is answered with its stored result.
#
#   sh examples/jobs_check.sh [URL]
#
# URL          the server's address; the default is http://127.0.0.1:8788
# SEMEL_TOKEN  bearer token, if the server requires one; it does not appear in the process list
# AUDIT        the server's logs/audit-important.jsonl, if it is readable here: it must contain the collision
#
# Needs a POSIX shell, curl, grep and sed. The script delays its jobs by an hour, so that no worker claims them, and
# ends them before it exits. Prints a line for each check; exits with 1 if a check fails, with 2 if no server answers.

set -u

URL=${1:-${SEMEL_URL:-http://127.0.0.1:8788}}
AUDIT=${AUDIT:-}
RUN="check-$(date +%s)-$$"
KIND="jobs.$RUN"
HOUR_MS=3600000
FAILED=0

# The header with the token goes to curl through its standard input, not as an argument that others could see.
credential() {
    if [ -n "${SEMEL_TOKEN:-}" ]; then
        printf 'header = "Authorization: Bearer %s"\n' "$(printf '%s' "$SEMEL_TOKEN" | sed 's/[\\"]/\\&/g')"
    fi
}

# ask METHOD PATH [BODY]: leaves the answer in BODY and its status in STATUS.
ask() {
    if [ $# -gt 2 ]; then
        answer=$(credential | curl -sS --max-time 30 --config - -X "$1" -H 'Content-Type: application/json' \
            --data-binary "$3" -w '\n%{http_code}' "$URL$2") || give_up
    else
        answer=$(credential | curl -sS --max-time 30 --config - -X "$1" -w '\n%{http_code}' "$URL$2") || give_up
    fi
    STATUS=${answer##*
}
    BODY=${answer%
*}
}

give_up() {
    echo "FAIL nobody answers at $URL"
    exit 2
}

# field NAME: a text, number or literal of the answer.
field() {
    printf '%s\n' "$BODY" | sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# check WORDS WANTED FOUND
check() {
    if [ "$2" = "$3" ]; then
        echo "ok   $1"
    else
        echo "FAIL $1: wanted '$2', got '$3'"
        FAILED=1
    fi
}

# submit KEY PARAMS
submit() {
    ask POST /mesh/submit_request \
        "{\"idempotency_key\":\"$1\",\"kind\":\"$KIND\",\"params\":$2,\"delay_ms\":$HOUR_MS}"
}

echo "Server: $URL"

# 1. Same key, same payload.
submit "$RUN-a" '{"n":1}'
check "the first submission is answered" 200 "$STATUS"
check "the first submission is accepted" accepted "$(field status)"
check "the first submission is no repetition" false "$(field dedup)"
JOB=$(field job_id)
REQUEST=$(field request_id)
repeated=0
for _ in 2 3 4 5 6 7 8 9 10; do
    submit "$RUN-a" '{"n":1}'
    if [ "$STATUS $(field dedup) $(field status)" = "200 true in_progress" ] &&
        [ "$(field job_id) $(field request_id)" = "$JOB $REQUEST" ]; then
        repeated=$((repeated + 1))
    fi
done
check "nine repetitions are in progress, with the same job and request" 9 "$repeated"
ask GET "/v1/jobs?kind=$KIND"
check "there is one job" 1 "$(printf '%s\n' "$BODY" | grep -o '"job_id"' | grep -c .)"

# 2. Same key, another payload.
submit "$RUN-a" '{"n":2}'
check "another payload under the key is refused" 409 "$STATUS"
check "the refusal names the collision" IDEMPOTENCY_KEY_COLLISION "$(field error)"
if [ -n "$AUDIT" ]; then
    line=$(grep '"IDEMPOTENCY_KEY_COLLISION"' "$AUDIT" | grep -c "\"$JOB\"")
    check "the audit file has the collision" 1 "$line"
fi
ask GET /metrics
check "the collision is counted" yes "$([ "$(field idempotent_collisions_1m)" -ge 1 ] 2>/dev/null && echo yes)"
ask GET "/v1/jobs/$JOB"
check "the first job is as it was" "200 accepted" "$STATUS $(field status)"
ask POST "/v1/jobs/$JOB/cancel" '{}'
check "the first job is cancelled" 200 "$STATUS"

# 3. A finished job.
submit "$RUN-b" '{"n":3}'
DONE=$(field job_id)
ask POST /mesh/results/submit "{\"job_id\":\"$DONE\",\"ok\":true,\"result\":{\"answer\":42}}"
check "a result is taken" 200 "$STATUS"
submit "$RUN-b" '{"n":3}'
check "the repetition is completed" "200 true completed $DONE" \
    "$STATUS $(field dedup) $(field status) $(field job_id)"
check "the repetition carries the result" 42 "$(field answer)"

if [ "$FAILED" -eq 0 ]; then
    echo "All is as it should be."
fi
exit "$FAILED"
