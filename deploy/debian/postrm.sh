#!/bin/sh
# After the files are gone. A purge removes what the daemon wrote, too. Its user stays, as
# Debian's do, so that no other gets its number; and so does what people have put into
# /etc/ratelimitd.
set -e
if [ "$1" = remove ] && [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = purge ]; then
  if command -v deb-systemd-helper >/dev/null; then
    deb-systemd-helper purge ratelimitd.service >/dev/null || true
  fi
  rm -rf "${DPKG_ROOT:-}/var/lib/ratelimitd" "${DPKG_ROOT:-}/var/log/ratelimitd"
fi
