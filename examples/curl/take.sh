#!/bin/sh
# Asks a running daemon by HTTP: takes, runs into the limit, gives a take back,
# and takes again. Usage: take.sh [HOST:PORT], of a daemon on deploy/limits, where
# each user has 10 requests a minute.
set -eu
url=http://${1:-localhost:8080}/v1

# A user of nobody else's, so that the limit is full.
request="{\"domain\": \"api\", \"descriptors\": [{\"entries\": [{\"key\": \"user\", \"value\": \"curl-$$\"}], \"cost\": 6}]}"

# post PATH BODY prints the status, and leaves the answer in $answer.
post() {
  answer=$(curl -sS -w '\n%{http_code}' "$url/$1" -d "$2")
  status=${answer##*
}
  echo "$1: $status"
}

post take "$request" # 200: 6 of 10
# For a give-back: takenAt and takenBy of each limit in the answer, of which there
# is one.
taken_at=$(echo "$answer" | sed -n 's/.*"takenAt": *"\([0-9-]*\)".*/\1/p')
taken_by=$(echo "$answer" | sed -n 's/.*"takenBy": *"\([0-9]*\)".*/\1/p')
post take "$request" # 429: 4 are left, and nothing was taken
echo "$answer" | grep -o '"retryAfter": *"[^"]*"' | head -n 1
post give-back "{\"take\": $request, \"takenAt\": [\"$taken_at\"], \"takenBy\": [\"$taken_by\"]}"
post take "$request" # 200 again
