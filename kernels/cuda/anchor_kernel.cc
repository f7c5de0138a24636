#include "anneal/kernels/cuda/anchor_kernel.h"

#include <fmt/format.h>

#include <limits>

namespace anneal::cuda {
namespace {

struct PreparedAnchor final : Prepared {
  Geometry geometry;
  std::vector<int64_t> values;
  std::vector<bool> strides_allow;  // per VectorRead
};

bool strides_allow(const VectorRead& read, const TensorView& view) {
  if (read.is_linear) return view.dims[0] == 1 || view.strides[0] % read.elements == 0;
  for (int axis = 0; axis < view.dims.rank(); ++axis) {
    const bool matters = axis != read.axis && view.dims[axis] > 1;
    if (matters && view.strides[axis] % read.elements != 0) return false;
  }
  return view.strides[read.axis] == 1;
}

bool is_aligned(const VectorRead& read, const TensorView& view) {
  const auto bytes = static_cast<size_t>(read.elements) * size_of(view.dtype);
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
}

}  // namespace

int64_t vector_elements(const Operand& operand, int axis, Size size, int64_t most) {
  if (!(operand.strides[axis] == Size(1)) || !size.known()) return 1;
  const auto allows = [&](int64_t elements) {
    if (size.value() % elements != 0) return false;
    for (int other = 0; other < operand.strides.rank(); ++other) {
      const Size stride = operand.strides[other];
      const bool matters = other != axis && !(operand.type.shape[other] == Size(1));
      if (matters && stride.known() && stride.value() % elements != 0) return false;
    }
    return true;
  };
  int64_t elements = most;
  while (elements > 1 && !allows(elements)) elements /= 2;
  return elements;
}

std::unique_ptr<Prepared> AnchorKernel::prepare(std::span<const TensorView> inputs,
                                                std::span<const TensorView> outputs, int) const {
  auto made = std::make_unique<PreparedAnchor>();
  made->geometry = parts_.geometry(inputs, outputs);
  made->values = values_of(parts_.sources, inputs, outputs);
  for (const VectorRead& read : parts_.vectors)
    made->strides_allow.push_back(strides_allow(read, inputs[read.input]));
  return made;
}

void AnchorKernel::launch(const LaunchArgs& args) const {
  const auto& prepared = static_cast<const PreparedAnchor&>(*args.prepared);
  Arguments arguments;
  for (const size_t input : parts_.inputs) arguments.add(args.inputs[input]);
  int32_t aligned = 0;
  for (size_t i = 0; i < parts_.vectors.size(); ++i) {
    const VectorRead& read = parts_.vectors[i];
    if (prepared.strides_allow[i] && is_aligned(read, args.inputs[read.input])) aligned |= 1 << i;
  }
  arguments.add(aligned);
  if (parts_.store) {
    parts_.store->add_arguments(arguments, args.inputs, args.outputs);
  } else {
    for (const TensorView& output : args.outputs) arguments.add(output);
  }
  for (const int64_t value : prepared.values) arguments.add(value);
  cuda::launch(args.stream, *parts_.function, prepared.geometry, arguments);
}

Made make_anchor(AnchorParts parts, const Request& request) {
  const size_t arguments =
      request.inputs.size() + request.outputs.size() + parts.sources.size() + 1;
  if (arguments > Arguments::kMost)
    return refuse(
        fmt::format("{} arguments, where a launch takes {}", arguments, Arguments::kMost));
  return {std::make_unique<AnchorKernel>(std::move(parts)), {}};
}

Geometry blocks_of(int64_t blocks, int threads, int shared_bytes) {
  if (blocks > std::numeric_limits<int32_t>::max())
    fail(anneal::Code::kUnsupported, fmt::format("a grid of {} blocks", blocks));
  Geometry geometry;
  geometry.grid[0] = static_cast<uint32_t>(blocks);
  geometry.block[0] = static_cast<uint32_t>(threads);
  geometry.shared_bytes = static_cast<uint32_t>(shared_bytes);
  return geometry;
}

}  // namespace anneal::cuda
