#!/bin/bash
# The demo: build an engine from a shipped classifier, run it over the shipped, labelled pictures, and show what precision buys.
set -euo pipefail
cd "$(dirname "$0")/../.."

anneal=build/release/bin/anneal
here=samples/glyphs
engine=build/demo/glyphs.engine
mkdir -p build/demo

echo "== $here/glyphs.onnx, a small convolutional network that reads 47 characters, becomes an engine:"
"$anneal" build "$here/glyphs.onnx" -o "$engine"
echo
echo "== The engine reads the test pictures, rendered from fonts that it never saw in training:"
"$anneal" eval "$engine" --data "$here/test-images.idx3-ubyte" --labels "$here/test-labels.idx1-ubyte" \
  --scale 1/255 --classes "$here/labels.txt" --batch 16 --show 3
echo
echo "== A larger network for the same pictures: accuracy and speed of each precision, and the fastest mix that loses at most"
echo "   half a point (a minute; $here/glyphs_wide.onnx):"
build/release/bin/accuracy_vs_latency
echo
cat <<EOF
Next:
  $anneal inspect $engine               what became of the network, layer by layer
  $anneal run $engine --input random --profile    how long each step takes, on random input
  $anneal tune YOUR.onnx --data YOUR_SAMPLES --max-drop 0.5 -o YOUR.engine
  $anneal build YOUR.onnx -o YOUR.engine && $anneal run YOUR.engine --input random
EOF
