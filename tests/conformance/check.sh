#!/bin/bash
# check.sh ANNEAL CASES KNOWN_FAILURES[,KNOWN_FAILURES...] [FLAG...]: `anneal check` with these lists together, or exit 77
# (skipped) where the cases are not on this machine.
set -euo pipefail
[ -e "$2" ] || { echo "skipped: $2 is not there"; exit 77; }
known=$(mktemp)
trap 'rm -f "$known"' EXIT
IFS=, read -ra lists <<<"$3"
cat "${lists[@]}" >"$known"
"$1" check "$2" --known-failures "$known" --quiet --jobs 0 "${@:4}"
