#!/bin/sh
# After the files are there: makes the user, and starts the daemon, or another one after
# an upgrade. With DPKG_ROOT the machine is another one, on which nothing can be started.
set -e
case "$1" in
configure | abort-upgrade | abort-deconfigure | abort-remove) ;;
*) exit 0 ;;
esac
systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} ratelimitd.conf
deb-systemd-helper unmask ratelimitd.service >/dev/null || true
# What an operator has disabled stays so.
if deb-systemd-helper --quiet was-enabled ratelimitd.service; then
  deb-systemd-helper enable ratelimitd.service >/dev/null || true
else
  deb-systemd-helper update-state ratelimitd.service >/dev/null || true
fi
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload >/dev/null || true
  action=start
  [ -z "$2" ] || action=restart
  deb-systemd-invoke "$action" ratelimitd.service >/dev/null || true
fi
