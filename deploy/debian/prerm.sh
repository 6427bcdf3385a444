#!/bin/sh
# Before the files go: stops the daemon. At an upgrade it runs on until the new one is
# there.
set -e
if [ "$1" = remove ] && [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  deb-systemd-invoke stop ratelimitd.service >/dev/null || true
fi
