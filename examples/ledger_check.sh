#!/bin/sh
# Asks a running server the questions that a ledger must answer: ten times the same transaction is one block, another
# payload under its sequence is refused, a gap or a failed condition uses no sequence, and the state can be proved.
#
#   sh examples/ledger_check.sh [URL]
#
# URL          the server's address; the default is http://127.0.0.1:8788
# SEMEL_TOKEN  an administrator's bearer token, if the server requires one; it does not appear in the process list
#
# Needs a POSIX shell, curl, grep and sed. Creates an organization, and deletes it before it exits. Prints a line
# for each check; exits with 1 if a check fails, with 2 if no server answers.

set -u

URL=${1:-${SEMEL_URL:-http://127.0.0.1:8788}}
RUN="check-$(date +%s)-$$"
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
            --data-binary "$3" -w '\n%{http_code}' "$URL/ledger/v1/orgs$2") || give_up
    else
        answer=$(credential | curl -sS --max-time 30 --config - -X "$1" -w '\n%{http_code}' \
            "$URL/ledger/v1/orgs$2") || give_up
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

# field NAME: a text, number or literal of the answer; the last one of that name.
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

# write SEQUENCE KEY VALUE [CONDITION]: one set of one entity, with its value in base64.
write() {
    condition='{}'
    if [ $# -gt 3 ]; then
        condition=$4
    fi
    operation="{\"setEntity\":{\"key\":\"$2\",\"value\":\"$3\",\"condition\":$condition}}"
    ask POST "$PLACE/writes" "{\"clientId\":\"$RUN\",\"sequence\":\"$1\",\"operations\":[$operation]}"
}

echo "Server: $URL"

ask POST "" "{\"name\":\"$RUN\"}"
check "an organization is made" 200 "$STATUS"
ORG=$(field slug)
ask POST "/$ORG/vaults" '{}'
check "a vault is made" 200 "$STATUS"
VAULT=$(printf '%s\n' "$BODY" | sed -n 's/^{"vault": *{"slug": *"\([0-9]*\)".*/\1/p')
PLACE="/$ORG/vaults/$VAULT"

# 1. The same transaction, ten times. Its condition holds only once.
write 1 ada MTAw '{"notExists":true}'
check "the first transaction is committed at height 1" "200 1 1" \
    "$STATUS $(field blockHeight) $(field assignedSequence)"
TX=$(field id)
repeated=0
for _ in 2 3 4 5 6 7 8 9 10; do
    write 1 ada MTAw '{"notExists":true}'
    if [ "$STATUS $(field blockHeight) $(field id)" = "200 1 $TX" ]; then
        repeated=$((repeated + 1))
    fi
done
check "nine repetitions get the same id and height" 9 "$repeated"
ask GET "$PLACE/tip"
check "there is one block" "200 1" "$STATUS $(field height)"

# 2. The same sequence, another payload; a sequence too far ahead.
write 1 ada OTk=
check "another payload under the sequence is refused" "409 WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED" \
    "$STATUS $(field code)"
write 5 ada OTk=
check "a gap is refused" "409 WRITE_ERROR_CODE_SEQUENCE_GAP 1" \
    "$STATUS $(field code) $(field lastCommittedSequence)"

# 3. A failed condition uses no sequence.
write 2 ada ODA= '{"version":"9"}'
check "a condition that fails is told" "412 WRITE_ERROR_CODE_VERSION_MISMATCH 1" \
    "$STATUS $(field code) $(field currentVersion)"
ask GET "$PLACE/clients/$RUN/state"
check "the sequence is still free" "200 1" "$STATUS $(field lastCommittedSequence)"
write 2 ada ODA= '{"version":"1"}'
check "the mended transaction takes it" "200 2 2" "$STATUS $(field blockHeight) $(field assignedSequence)"

# 4. The present state, an earlier state, and an absent entity.
ask GET "$PLACE/entities/ada"
check "the value is the new one" "200 ODA=" "$STATUS $(field value)"
ask GET "$PLACE/entities/ada?atHeight=1"
check "at height 1 it is the old one" "200 MTAw" "$STATUS $(field value)"
ask GET "$PLACE/entities/bob"
check "what is not there is not found" 404 "$STATUS"
ask GET "$PLACE/entities/ada?proof=true"
check "a proof has the roots of the other buckets" "200 255" "$STATUS $(printf '%s\n' "$BODY" |
    sed 's/.*"otherBucketRoots":\[\([^]]*\)\].*/\1/' | grep -o '"value"' | grep -c .)"

ask DELETE "/$ORG"
check "the organization is deleted" 200 "$STATUS"

if [ "$FAILED" -eq 0 ]; then
    echo "All is as it should be."
fi
exit "$FAILED"
