// Softmax and Normalize. Statistics and exponentials are in f64, rounded once.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/program_map.h"

namespace anneal::cpu {
namespace {

// body(group, offsets): for each group of elements that belong together; group walks (x, y)
// offsets that add to `offsets`.
template <class Body>
void for_groups(const ReferenceArgs& args, const TensorView& x,
                const std::array<bool, kMaxRank>& reduced, Body body) {
  const TensorView& y = args.results[0];
  const auto split = split_axes<2>(y.dims, {x.strides, y.strides}, reduced);
  const int64_t grain = kGrain / (split.reduced.count() + 1) + 1;
  args.team.for_ranges(split.kept.count(), grain, [&](int64_t begin, int64_t end) {
    split.kept.for_elements(begin, end, [&](const auto& offsets) { body(split.reduced, offsets); });
  });
}

size_t softmax_scratch(const Softmax& op, std::span<const TensorView> inputs,
                       std::span<const TensorView>) {
  return op.map.empty() ? 0 : mapped_bytes(op.map, mapped_dims(inputs, 1), inputs.size());
}

void softmax(const Softmax& op, const ReferenceArgs& args) {
  std::array<bool, kMaxRank> reduced{};
  reduced[op.axis] = true;
  const TensorView of = op.map.empty() ? args.inputs[0]
                                       : mapped(op.map, mapped_dims(args.inputs, 1), args.inputs[0],
                                                args.inputs.subspan(1), args.scratch, args.team);
  const std::byte* x = of.data;
  visit_float(of.dtype, [&]<class E>(E) {
    using Acc = typename E::Acc;
    const ResultElements<Acc> out(args.results[0]);
    for_groups(args, of, reduced, [&](const Walk<2>& group, const auto& base) {
      double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
      group.for_elements([&](const auto& at) {
        maximum = std::max<double>(maximum, E::load(x, base[0] + at[0]));
      });
      group.for_elements(
          [&](const auto& at) { sum += std::exp(E::load(x, base[0] + at[0]) - maximum); });
      const double log_sum = std::log(sum);
      group.for_elements([&](const auto& at) {
        const double shifted = E::load(x, base[0] + at[0]) - maximum;
        const double value = op.log ? shifted - log_sum : std::exp(shifted) / sum;
        out.put(base[1] + at[1], static_cast<Acc>(value));
      });
    });
  });
}

void normalize(const Normalize& op, const ReferenceArgs& args) {
  std::array<bool, kMaxRank> reduced{};
  for (const int64_t axis : op.axes) reduced[axis] = true;
  const std::byte* x = args.inputs[0].data;
  visit_float(args.inputs[0].dtype, [&]<class E>(E) {
    using Acc = typename E::Acc;
    const ResultElements<Acc> out(args.results[0]);
    for_groups(args, args.inputs[0], reduced, [&](const Walk<2>& group, const auto& base) {
      const auto elements = static_cast<double>(group.count());
      double mean = 0, variance = 0;
      if (op.subtract_mean) {
        group.for_elements([&](const auto& at) { mean += E::load(x, base[0] + at[0]); });
        mean /= elements;
      }
      group.for_elements([&](const auto& at) {
        const double centred = E::load(x, base[0] + at[0]) - mean;
        variance += centred * centred;
      });
      const double deviation = std::sqrt(variance / elements + op.epsilon);
      group.for_elements([&](const auto& at) {
        const double value = (E::load(x, base[0] + at[0]) - mean) / deviation;
        out.put(base[1] + at[1], static_cast<Acc>(value));
      });
    });
  });
}

constexpr KernelEntry kNormEntries[] = {
    reference<Softmax, softmax, softmax_scratch>("cpu.softmax.reference"),
    reference<Normalize, normalize>("cpu.normalize.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_norm_entries() { return kNormEntries; }

}  // namespace anneal::cpu
