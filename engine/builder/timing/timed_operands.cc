#include "anneal/engine/builder/timing/timed_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/plan_check.h"
#include "anneal/graph/text/text_rules.h"

namespace anneal {
namespace {

constexpr int64_t kOthersBytes = int64_t{4} << 20;  // of each core: more than its own cache
constexpr int64_t kPatternElements = 4096;

Dims opt_dims(const SizeTable& sizes, const Shape& shape) {
  Dims dims;
  for (const Size size : shape) dims.push_back(opt_size(sizes, size));
  return dims;
}

bool is_random(DataType dtype) { return is_float(dtype) || is_8bit(dtype); }

}  // namespace

int64_t opt_size(const SizeTable& sizes, Size size) {
  if (size.known()) return size.value();
  std::vector<std::optional<int64_t>> values;
  for (const SizeSymbol& symbol : sizes.symbols()) values.emplace_back(symbol.bounds.opt);
  const int64_t value = sizes.evaluate(size, values);
  if (value < 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} is {} at the sizes to optimize for", sizes.text(size), value));
  return value;
}

TensorView opt_view(const SizeTable& sizes, const Operand& operand) {
  return {operand.type.dtype, opt_dims(sizes, operand.type.shape), opt_dims(sizes, operand.strides),
          nullptr};
}

std::vector<std::byte> timing_pattern(DataType dtype, uint64_t seed) {
  if (!is_random(dtype)) return std::vector<std::byte>(kPatternElements * size_of(dtype));
  const Tensor tensor = text::random_tensor(dtype, {kPatternElements}, seed);
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

TimedOperands::TimedOperands(const Request& request, int threads)
    : device_(request.device), stream_(device_.make_stream()) {
  for (const Operand& input : request.inputs) inputs_.push_back(view_of(request, input));
  written_ = activations_.size();
  for (const Operand& output : request.outputs) outputs_.push_back(view_of(request, output));
  others_ = device_.allocate(static_cast<size_t>(kOthersBytes * threads));
}

TensorView TimedOperands::view_of(const Request& request, const Operand& operand) {
  if (!operand.present) return {};
  if (operand.constant != nullptr) return kernel_view(*operand.constant);
  TensorView view = opt_view(request.sizes, operand);
  const auto elements = static_cast<size_t>(extent(view.dims, view.strides));
  Activation activation;
  activation.buffer = device_.allocate(std::max<size_t>(elements * size_of(view.dtype), 1));
  activation.pattern = timing_pattern(view.dtype, activations_.size() + 1);
  view.data = activation.buffer->data();
  activations_.push_back(std::move(activation));
  return view;
}

void TimedOperands::lie_as_in_a_network(ThreadTeam& team) {
  // Of the size of a core's cache for each thread, if each takes its part.
  team.for_ranges(static_cast<int64_t>(others_->size()), kOthersBytes,
                  [&](int64_t begin, int64_t end) {
                    std::memset(others_->data() + begin, 1, static_cast<size_t>(end - begin));
                  });
  for (size_t i = 0; i < written_; ++i) {
    const Activation& each = activations_[i];
    const auto bytes = static_cast<int64_t>(each.buffer->size());
    const auto step = static_cast<int64_t>(each.pattern.size());
    team.for_ranges((bytes + step - 1) / step, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * step; at < std::min(end * step, bytes); at += step)
        std::memcpy(each.buffer->data() + at, each.pattern.data(),
                    static_cast<size_t>(std::min(step, bytes - at)));
    });
  }
}

}  // namespace anneal
