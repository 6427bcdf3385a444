#!/bin/sh
# Asks daemons that serve deploy/limits, over and over, so that every panel of
# deploy/grafana has something to show: limits that allow, are near their end, and
# deny, costs, refunds, give-backs and peeks, reservations and their settlements, slots,
# a candidate in shadow, and mistakes.
#
#   deploy/load.sh http://localhost:8080 http://localhost:18080
#
# It asks each about 25 times a second, until Ctrl-C; ROUNDS=5 ends it after five
# rounds.
set -u

# post URL PATH BODY asks once. What is answered is seen in the metrics.
post() { curl -sS -m 2 -o /dev/null "$1/$2" -d "$3"; }

# take URL DOMAIN KEY VALUE [COST] takes from the limits of one descriptor.
take() { post "$1" v1/take "{\"domain\": \"$2\", \"descriptors\": [$(descriptor "$3" "$4" "${5:-1}")]}"; }

descriptor() { echo "{\"entries\": [{\"key\": \"$1\", \"value\": \"$2\"}], \"cost\": $3}"; }

# give_back URL takes, and gives back what it took.
give_back() {
  request="{\"domain\": \"batch\", \"descriptors\": [$(descriptor job import 200)]}"
  answer=$(curl -sS -m 2 "$1/v1/take" -d "$request")
  at=$(echo "$answer" | grep -o '"takenAt": *"[0-9-]*"' | grep -o '"[0-9-]*"' | paste -s -d , -)
  by=$(echo "$answer" | grep -o '"takenBy": *"[0-9]*"' | grep -o '"[0-9]*"' | paste -s -d , -)
  post "$1" v1/give-back "{\"take\": $request, \"takenAt\": [$at], \"takenBy\": [$by]}"
}

# reserve URL takes with an id, and settles it: for less, for more, and once by an
# unknown id.
reserve() {
  id=load-$$-$((n += 1))
  job="{\"entries\": [{\"key\": \"job\", \"value\": \"mail\"}], \"cost\":"
  post "$1" v1/take "{\"domain\": \"batch\", \"id\": \"$id\", \"descriptors\": [$job 20}]}"
  post "$1" v1/settle "{\"domain\": \"batch\", \"id\": \"$id\", \"descriptors\": [$job 5}]}"
  post "$1" v1/settle "{\"domain\": \"batch\", \"id\": \"$id\", \"descriptors\": [$job 25}]}"
  post "$1" v1/settle "{\"domain\": \"batch\", \"id\": \"no-$id\", \"descriptors\": [$job 1}]}"
}

# hold URL takes a slot, renews it, and releases it twice.
hold() {
  job="{\"domain\": \"api\", \"descriptors\": [{\"entries\": [{\"key\": \"worker\", \"value\": \"pool\"}, {\"key\": \"job\", \"value\": \"load-$$-$((n += 1))\"}]}]}"
  for path in take take release release; do post "$1" "v1/$path" "$job"; done
}

round() {
  for user in ann ben cleo dan; do take "$1" api user "$user"; done
  for _ in 1 2 3; do take "$1" api user crawler; done # two limits, of which one denies
  take "$1" api tenant acme
  take "$1" api user ann 0 # a peek
  take "$1" batch job import 300
  post "$1" json "{\"domain\": \"batch\", \"descriptors\": [{\"entries\": [{\"key\": \"job\", \"value\": \"import\"}], \"hitsAddend\": 50, \"isNegativeHits\": true}]}" # a refund
  give_back "$1"
  take "$1" batch job report
  reserve "$1"
  hold "$1"
  post "$1" v1/take "{\"domain\": \"login\", \"descriptors\": [$(descriptor account eve 1), $(descriptor address 192.0.2.7 1)]}"
  post "$1" json '{"domain": "routes", "descriptors": [{"entries": [{"key": "route", "value": "/search"}]}]}'
  take "$1" api colour blue # no rule is for it
  post "$1" v1/take '{"domain": ""}' # an error
}

[ $# -gt 0 ] || { echo "usage: load.sh URL..." >&2; exit 2; }
left=${ROUNDS:--1}
n=0
while [ "$left" -ne 0 ]; do
  for url in "$@"; do round "$url"; done
  left=$((left - 1))
  [ "$left" -eq 0 ] || sleep 1
done
