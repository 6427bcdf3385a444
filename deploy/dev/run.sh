#!/bin/sh
# Starts a daemon on the example limits, lets a caller run into one of them,
# and keeps serving until Ctrl-C. Usage: run.sh path/to/ratelimitd
set -eu
ratelimitd=$1
cd "$(dirname "$0")/../.."

if "$ratelimitd" health >/dev/null 2>&1; then
  echo "A daemon is serving on port 8081 already; stop it first." >&2
  exit 1
fi

# A token that may do everything, so that plans can be tried.
state=build/dev
(
  umask 077
  mkdir -p $state
  if ! [ -s $state/token ] || ! [ -s $state/tokens.yaml ]; then
    rm -f $state/tokens.yaml
    "$ratelimitd" token make-run --role operator --tokens-file $state/tokens.yaml 2>/dev/null > $state/token
  fi
)
if [ -n "${RATELIMITD_ADMIN_ADDRESS-on}" ]; then # not switched off
  export RATELIMITD_ADMIN_TOKENS_FILE="${RATELIMITD_ADMIN_TOKENS_FILE:-$state/tokens.yaml}"
fi
export RATELIMITD_ASSIGNMENTS_PATH="${RATELIMITD_ASSIGNMENTS_PATH:-$state/assignments.db}"

RATELIMITD_LOG_LEVEL=${RATELIMITD_LOG_LEVEL:-warn} "$ratelimitd" serve --limits-path deploy/limits &
daemon=$!
trap 'kill -INT $daemon 2>/dev/null; wait $daemon; exit 0' INT TERM

tries=0
until "$ratelimitd" health >/dev/null 2>&1; do
  kill -0 $daemon 2>/dev/null || { wait $daemon || exit 1; }
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { echo "the daemon does not serve" >&2; kill $daemon; exit 1; }
  sleep 0.1
done

cat <<'EOF'

deploy/limits/api.yaml gives each user 10 requests a minute. Alice asks 13 times:

  $ ratelimitd query --domain api --count 13 user=alice

EOF
kill -0 $daemon 2>/dev/null || { wait $daemon || exit 1; }
# With the token, a denial names its rule.
RATELIMITD_TOKEN=$(cat $state/token) "$ratelimitd" query --domain api --count 13 user=alice || [ $? = 3 ]
cat <<EOF

Serving gRPC on :8081, HTTP on :8080, admin on 127.0.0.1:6070, until Ctrl-C. Try

  export RATELIMITD_TOKEN=\$(cat $state/token)   # lets you see and change all
  $ratelimitd query --domain login account=alice address=192.0.2.7
  curl -i localhost:8080/json -d '{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}'

See who is denied, give a customer a plan, and see what it gets:

  $ratelimitd top api
  $ratelimitd assign --domain api tenant=acme --plan pro
  $ratelimitd explain --domain api tenant=acme
  curl localhost:6070/rlconfig

EOF
wait $daemon
