#!/bin/sh
# Makes sure that the tests have what they run: curl, and a Redis, which is
# REDIS_ADDRS or a redis-server on PATH. As root on Debian it installs what is
# missing; else it says what to install. Where there is no Envoy, it says which
# tests are skipped.
set -eu
cd "$(dirname "$0")/.."
[ -n "${ENVOY:-}" ] || ls ../shared/envoy/*.whl >/dev/null 2>&1 || command -v envoy >/dev/null ||
  echo "no Envoy (name one in ENVOY, or put it on PATH): its tests are skipped" >&2
missing=
[ -n "${REDIS_ADDRS:-}" ] || command -v redis-server >/dev/null || missing="$missing redis-server"
command -v curl >/dev/null || missing="$missing curl"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing$missing" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # The service that Debian's package starts is not needed; the tests run
  # servers of their own.
  # shellcheck disable=SC2086 # names of packages
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
  exit 0
fi
echo "The tests need$missing. On Debian: apt-get install$missing. Or name a Redis in REDIS_ADDRS=host:port." >&2
exit 1
