#!/bin/sh
# Makes sure that the tests have a Redis to run against: REDIS_ADDRS, or a
# redis-server on PATH, which it installs from Debian's packages when it can.
set -eu
if [ -n "${REDIS_ADDRS:-}" ] || command -v redis-server >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing redis-server" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # The service that the package starts is not needed; the tests run their own.
  apt-get install -y -qq --no-install-recommends redis-server >/dev/null
  exit 0
fi
echo "The tests need a redis-server: install it (Debian: apt-get install redis-server), or name one in REDIS_ADDRS=host:port" >&2
exit 1
