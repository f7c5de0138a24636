#!/bin/bash
# Runs Anneal's GPU suite on this machine and writes one JSON file. Needs x86-64 Linux with glibc 2.36
# or newer and an NVIDIA driver; NVRTC (of a CUDA toolkit or of pip's nvidia-cuda-nvrtc) for all that
# is not prebuilt. Ends within 8 minutes. Exit status 0: all that ran passed.
#
#   ./run.sh [--device cuda|cuda:N|emulated] [--out FILE] [--part NAME]...
#
# Parts: facts engines models tests op_suite times sanitizer (default: all).
set -uo pipefail
shopt -s nullglob
here=$(cd "$(dirname "$0")" && pwd)
device=cuda out=gpu-report.json parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --device | --out | --part)
      [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
      case $1 in
        --device) device=$2 ;;
        --out) out=$2 ;;
        --part) parts+=("$2") ;;
      esac
      shift 2 ;;
    *) echo "unknown argument $1; see the head of $0" >&2; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(facts engines models tests op_suite times sanitizer)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ANNEAL_CACHE_DIR=$work/cache ANNEAL_TEST_DEVICE=$device
bin=$here/bin
status=0

# Text on stdin as a JSON string.
quoted() {
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | tr -d '\000-\011\013-\037' |
    awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}

# record NAME SECONDS FILE COMMAND...: one member of the report: exit status, time, the end of what the
# command printed, and FILE, which it writes as JSON ("" if it writes none).
members=()
record() {
  local name=$1 limit=$2 json=$3 rc seconds=$SECONDS
  shift 3
  echo "$name" >&2
  timeout -k 10 "$limit" "$@" >"$work/printed" 2>&1
  rc=$?
  [ $rc -eq 0 ] || { status=1; echo "  exit status $rc" >&2; tail -n 3 "$work/printed" >&2; }
  {
    printf '"%s": {"command": %s, "exit_status": %d, "seconds": %d, "limit_seconds": %d' \
      "$name" "$(printf '%s' "${*//$here/.}" | quoted)" $rc $((SECONDS - seconds)) "$limit"
    # What goes well says enough by its JSON.
    if [ $rc -ne 0 ] || [ -z "$json" ]; then
      printf ', "printed": %s' "$(tail -c 6000 "$work/printed" | quoted)"
    fi
    if [ -n "$json" ] && [ -s "$json" ]; then printf ', "result": '; cat "$json"; fi
    printf '}'
  } >"$work/member.${#members[@]}"
  members+=("$work/member.${#members[@]}")
}

has() { case " ${parts[*]} " in *" $1 "*) return 0 ;; esac; return 1; }

if has facts; then
  record machine 20 "" sh -c 'date -u +%Y-%m-%dT%H:%M:%SZ; uname -srm; ldd --version | head -n 1;
    grep -m 1 "model name" /proc/cpuinfo; nproc; nvidia-smi 2>&1 | head -n 20; true'
  record devices 60 "$work/devices.json" "$bin/anneal" devices --json "$work/devices.json"
fi
# Engines built elsewhere, whose code for this card's architecture is in the file or made here.
if has engines; then
  for engine in "$here"/engines/*.engine; do
    name=$(basename "$engine" .engine)
    record "engine $name" 60 "$work/result.json" \
      "$bin/anneal" compare "$engine" "$engine" --target-a "$device" --target-b cpu --json "$work/result.json"
    rm -f "$work/result.json"
  done
fi
if has models; then
  target=$device
  [ "$device" = emulated ] || target=$("$bin/anneal" devices | sed -n "s/.*${device%%:*}.*\(sm_[0-9]*\).*/\1/p" | head -n 1)
  for model in "$here"/models/*.onnx; do
    name=$(basename "$model" .onnx)
    record "build $name" 90 "$work/build.json" \
      "$bin/anneal" build "$model" --target "${target:-sm_90},cpu" -o "$work/model.engine" --report "$work/build.json"
    record "model $name" 90 "$work/result.json" "$bin/anneal" compare "$work/model.engine" "$work/model.engine" \
      --target-a "$device" --target-b cpu --json "$work/result.json"
    rm -f "$work"/*.json "$work/model.engine"
  done
fi
if has tests; then
  record device_tests 60 "$work/result.json" "$bin/gpu_test" "--gtest_output=json:$work/result.json"
  rm -f "$work/result.json"
fi
# Compiling takes most of the time, and NVRTC does one program at a time in a process: a process for
# each share of the cases where there are cores, else a tenth of the cases.
op_suite_shares() {
  local share failed=0 pids=()
  for share in $(seq "$1"); do
    ANNEAL_OP_CASES=$share/$1 "$bin/cuda_op_suite_test" --gtest_filter='*Reference' \
      "--gtest_output=json:$work/share.$share.json" >"$work/share.$share" 2>&1 &
    pids+=($!)
  done
  for share in "${!pids[@]}"; do wait "${pids[$share]}" || { failed=1; tail -n 20 "$work/share.$((share + 1))"; }; done
  { printf '['; for share in $(seq "$1"); do [ "$share" = 1 ] || printf ','; cat "$work/share.$share.json" || printf null; done
    printf ']'; } >"$2"
  return $failed
}
export -f op_suite_shares
export bin work

if has op_suite; then
  if [ "$device" != emulated ] && [ "$(nproc)" -ge 8 ]; then
    record op_suite 240 "$work/result.json" bash -c "op_suite_shares 8 $work/result.json"
  else
    record op_suite_tenth 150 "$work/result.json" \
      env ANNEAL_OP_CASES=tenth "$bin/cuda_op_suite_test" "--gtest_output=json:$work/result.json"
  fi
  rm -f "$work/result.json"
fi
if has times; then
  record kernel_times 60 "$work/result.json" \
    sh -c '"$0" "$1" >"$2"' "$bin/anneal_gpu_times" "$device" "$work/result.json"
  rm -f "$work/result.json"
fi
if has sanitizer && [ "$device" != emulated ]; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck synccheck initcheck; do
      record "sanitizer $tool" 20 "" "$sanitizer" --tool $tool --error-exitcode 9 \
        "$bin/anneal" run "$here/engines/$(ls "$here/engines" | head -n 1)" --device "$device" -i random
    done
  else
    echo "sanitizer: compute-sanitizer is not here" >&2
  fi
fi

{
  printf '{"anneal": %s,\n"device": "%s"' "$(quoted <"$here/VERSION")" "$device"
  for member in "${members[@]}"; do printf ',\n'; cat "$member"; done
  printf '}\n'
} >"$out.part" && mv "$out.part" "$out"
echo "written: $out" >&2
exit $status
