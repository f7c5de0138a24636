#include "anneal/kernels/cuda/text/extents.h"

#include <fmt/format.h>

#include <algorithm>

namespace anneal::cuda {

std::string Extents::number(const Source& source) {
  const auto operands = source.output ? request_.outputs : request_.inputs;
  const Operand& operand = operands[static_cast<size_t>(source.operand)];
  const Size size = source.stride ? operand.strides[source.axis] : operand.type.shape[source.axis];
  // NVRTC 13.0 turns a sum of two small coordinates times negative constants into dp2a, and extends
  // its result without the sign. So a negative stride is no constant.
  if (size.known() && size.value() >= 0) return fmt::format("i64({})", size.value());
  auto found = std::find(sources_.begin(), sources_.end(), source);
  if (found == sources_.end()) found = sources_.insert(found, source);
  return fmt::format("v{}", found - sources_.begin());
}

std::string Extents::parameters() const {
  std::string text;
  for (size_t i = 0; i < sources_.size(); ++i) text += fmt::format(", i64 v{}", i);
  return text;
}

std::string Extents::names() const {
  std::string text;
  for (size_t i = 0; i < sources_.size(); ++i) text += fmt::format(", v{}", i);
  return text;
}

std::vector<int64_t> values_of(std::span<const Extents::Source> sources,
                               std::span<const TensorView> inputs,
                               std::span<const TensorView> outputs) {
  std::vector<int64_t> values;
  for (const Extents::Source& source : sources) {
    const TensorView& view =
        (source.output ? outputs : inputs)[static_cast<size_t>(source.operand)];
    values.push_back((source.stride ? view.strides : view.dims)[source.axis]);
  }
  return values;
}

}  // namespace anneal::cuda
