#!/bin/sh
# Runs go mod tidy in all modules of go.work, and in tools/packaging.
#
#   deploy/dev/tidy.sh         writes go.mod and go.sum
#   deploy/dev/tidy.sh -diff   shows what it would write, and fails if that is anything
#
# The modules require each other by a version that may not be published yet, and go
# mod tidy does not read go.work. So it works on copies of their files, in which the
# modules of this checkout replace the published ones.
set -eu
cd "$(dirname "$0")/../.."
IFS='
'
modules=$(go list -m -f '{{.Dir}}')
replace=$(go list -m -f '-replace={{.Path}}={{.Dir}}')
dropreplace=$(go list -m -f '-dropreplace={{.Path}}')
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
untidy=
# shellcheck disable=SC2086 # a flag on each line
for dir in $modules; do
  cp "$dir/go.mod" "$dir/go.sum" "$copy"
  go mod edit $replace "$copy/go.mod"
  GOWORK=off go -C "$dir" mod tidy "-modfile=$copy/go.mod" "$@" || untidy="$untidy $dir"
  go mod edit $dropreplace "$copy/go.mod"
  [ "$*" = -diff ] || cp "$copy/go.mod" "$copy/go.sum" "$dir"
done
GOWORK=off go -C tools/packaging mod tidy "$@" || untidy="$untidy tools/packaging"
[ -z "$untidy" ] || { echo "go mod tidy fails, or has something to do, in$untidy" >&2; exit 1; }
