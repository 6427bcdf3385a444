#!/bin/sh
# Makes sure that the tests have what they run: curl, jq, a Redis, which is
# REDIS_ADDRS or a redis-server on PATH, nginx and Caddy, Prometheus, systemd's and
# dpkg's tools, and gRPC for Debian's Python. As root on Debian it installs what is
# missing; else it says what to install. Where there is no Envoy, nginx, Caddy,
# Prometheus or systemd, it says which tests are skipped.
set -eu
cd "$(dirname "$0")/../.."
[ -n "${ENVOY:-}" ] || ls ../shared/envoy/*.whl >/dev/null 2>&1 || command -v envoy >/dev/null ||
  echo "no Envoy (name one in ENVOY, or put it on PATH): its tests are skipped" >&2
missing=
[ -n "${REDIS_ADDRS:-}" ] || command -v redis-server >/dev/null || missing="$missing redis-server"
command -v curl >/dev/null || missing="$missing curl"
command -v jq >/dev/null || missing="$missing jq"
/usr/bin/python3 -c 'import grpc, grpc_tools' 2>/dev/null || missing="$missing python3-grpcio python3-grpc-tools"
# Debian has nginx where only root has a PATH to it.
servers=
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || servers="$servers nginx"
command -v caddy >/dev/null || servers="$servers caddy"
command -v prometheus >/dev/null || servers="$servers prometheus"
# For the unit and the Debian package; systemd is not started.
command -v systemd-analyze >/dev/null || servers="$servers systemd"
command -v deb-systemd-helper >/dev/null || servers="$servers init-system-helpers"
command -v groff >/dev/null || servers="$servers groff-base"
[ -n "$missing$servers" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  missing="$missing$servers"
  echo "installing$missing" >&2
  export DEBIAN_FRONTEND=noninteractive
  # The services of Debian's packages are not needed, and not started where
  # nothing else says whether they are; the tests run servers of their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  apt-get update -qq
  # shellcheck disable=SC2086 # names of packages
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
  exit 0
fi
[ -z "$servers" ] || echo "no$servers (on Debian: apt-get install$servers): its tests are skipped" >&2
[ -n "$missing" ] || exit 0
echo "The tests need$missing. On Debian: apt-get install$missing. Or name a Redis in REDIS_ADDRS=host:port." >&2
exit 1
