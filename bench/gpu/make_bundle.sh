#!/bin/bash
# Writes dist/anneal-gpu-VERSION.tar.gz from a release build: programs, the shared libraries that they
# need (never one of NVIDIA's) with their licences, small models of our own, prebuilt engines where
# NVRTC is here, and the script that runs it all (bench/gpu/run_bundle.sh). What is in it and how to
# use it: docs/gpu.md.
#
#   bench/gpu/make_bundle.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
version=$(sed -n 's/^project(anneal VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=anneal-gpu-$version
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
trap 'echo "line $LINENO failed" >&2' ERR
root=$stage/$name
mkdir -p "$root"/{bin,lib,licenses,models,engines} dist

programs=("$build"/bin/{anneal,anneal_gpu_times} "$build"/tests/bin/{gpu_test,cuda_op_suite_test})
install -s "${programs[@]}" "$root/bin"
install bench/gpu/run_bundle.sh "$root/run.sh"
{ echo "$version"; git rev-parse HEAD 2>/dev/null || true; git status --porcelain | head -n 1; } >"$root/VERSION"

# All but the C library's own parts, which must be the machine's.
ldd "${programs[@]}" | awk '$2 == "=>" { print $3 }' | sort -u |
  grep -v -E '/(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so' | while read -r library; do
  case $(basename "$library") in
    libcuda* | libnv* | libcublas* | libcudnn*) echo "$library is NVIDIA's" >&2; exit 1 ;;
  esac
  install -s -m 644 "$(readlink -f "$library")" "$root/lib/$(basename "$library")"
  package=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null | head -n 1 | cut -d: -f1) || true
  [ -z "$package" ] || cp "/usr/share/doc/$package/copyright" "$root/licenses/$package"
done
cp LICENSE "$root/licenses/anneal"
patchelf --set-rpath '$ORIGIN/../lib' "$root"/bin/*
patchelf --set-rpath '$ORIGIN' "$root"/lib/*

cp samples/glyphs/glyphs.onnx "$root/models"
/usr/bin/python3 bench/gpu/make_models.py "$root/models"
for model in "$root"/models/*.onnx; do
  engine=$root/engines/$(basename "$model" .onnx).engine
  "$build"/bin/anneal build -q "$model" --target sm_80,sm_90,sm_100,sm_120,cpu -o "$engine" ||
    echo "no prebuilt engine of $model: the bundle builds its own where it runs" >&2
done

tar -C "$stage" --sort=name --owner=0 --group=0 -czf "dist/$name.tar.gz.part" "$name"
mv "dist/$name.tar.gz.part" "dist/$name.tar.gz"
bytes=$(stat -c %s "dist/$name.tar.gz")
echo "dist/$name.tar.gz: $((bytes / 1024)) KiB"
[ "$bytes" -lt $((40 * 1024 * 1024)) ] || { echo "that is over 40 MiB" >&2; exit 1; }
