// Attention by its definition: all scores, their softmax, and the weighted sum of v. Sums and
// exponentials are in f64, each rounded once.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/reference/program_map.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kColumnsAtOnce = 64;  // of v that share the exponentials of a row

Dims score_dims(std::span<const TensorView> inputs) {
  return {inputs[0].dims[0], inputs[0].dims[1], inputs[0].dims[2], inputs[1].dims[2]};
}

size_t product_bytes(std::span<const TensorView> inputs) {
  const size_t width = inputs[0].dtype == DataType::kF64 ? sizeof(double) : sizeof(float);
  return cache_aligned(static_cast<size_t>(count(score_dims(inputs))) * width);
}

// k and v of 16 bits or fewer beside q of f32.
bool is_widened(const TensorView& q, const TensorView& view) { return view.dtype != q.dtype; }

bool is_packed(const TensorView& view) { return view.dtype == DataType::kU8; }

Dims widened_dims(const TensorView& view) {
  Dims dims = view.dims;
  if (is_packed(view)) dims[3] *= 2;
  return dims;
}

size_t widened_bytes(std::span<const TensorView> inputs) {
  size_t bytes = 0;
  for (const TensorView& view : inputs.subspan(1, 2))
    if (is_widened(inputs[0], view))
      bytes += cache_aligned(static_cast<size_t>(count(widened_dims(view))) * sizeof(float));
  return bytes;
}

size_t scratch_bytes(const Attention& op, std::span<const TensorView> inputs,
                     std::span<const TensorView>) {
  const size_t bytes = product_bytes(inputs) + widened_bytes(inputs);
  if (op.score.empty()) return bytes;
  return bytes + mapped_bytes(op.score, score_dims(inputs), inputs.size());
}

// Two numbers of 4 bits in each byte, those of the low bits in the first half of a row.
void unpack(const TensorView& bytes, const TensorView& numbers, ThreadTeam& team) {
  const int64_t half = bytes.dims[3];
  team.for_ranges(count(numbers.dims), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Dims at = coordinates(numbers.dims, i);
      const int64_t byte = dot({at[0], at[1], at[2], at[3] % half}, bytes.strides);
      const int code = bytes.as<uint8_t>()[byte] >> (at[3] < half ? 0 : 4) & 15;
      numbers.as<float>()[i] = static_cast<float>(code - 8);
    }
  });
}

// The view, or its numbers in f32 at `to`, which moves behind them.
TensorView in_type_of(const TensorView& q, const TensorView& view, std::byte*& to,
                      ThreadTeam& team) {
  if (!is_widened(q, view)) return view;
  const TensorView wide = row_major_view(DataType::kF32, widened_dims(view), to);
  is_packed(view) ? unpack(view, wide, team) : copy_elements(view, wide, team);
  to += cache_aligned(static_cast<size_t>(count(wide.dims)) * sizeof(float));
  return wide;
}

// The head of k and v that head h of q goes with.
int64_t group_of(int64_t h, const TensorView& q, const TensorView& k) {
  return h / (q.dims[1] / k.dims[1]);
}

template <class E>
void products(const ReferenceArgs& args, const TensorView& k, const TensorView& scores) {
  const TensorView& q = args.inputs[0];
  const int64_t depth = q.dims[3];
  args.team.for_ranges(
      count(scores.dims), kGrain / (depth + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Dims at = coordinates(scores.dims, i);
          const int64_t row = dot({at[0], at[1], at[2], 0}, q.strides);
          const int64_t key = dot({at[0], group_of(at[1], q, k), at[3], 0}, k.strides);
          double sum = 0;
          for (int64_t d = 0; d < depth; ++d)
            sum += static_cast<double>(E::load(q.data, row + d * q.strides[3])) *
                   static_cast<double>(E::load(k.data, key + d * k.strides[3]));
          scores.as<typename E::Acc>()[i] = static_cast<typename E::Acc>(sum);
        }
      });
}

template <class E, class S>
void weigh(const Attention& op, const ReferenceArgs& args, const TensorView& v,
           const TensorView& scores) {
  const TensorView &q = args.inputs[0], &y = args.results[0];
  const ResultElements<typename E::Acc> out(y);
  const int64_t keys = scores.dims[3];
  const Dims rows = part(y.dims, 0, 3);
  args.team.for_ranges(count(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Dims at = coordinates(rows, row);
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      const auto score = [&](int64_t s) -> double { return S::load(scores.data, row * keys + s); };
      for (int64_t s = 0; s < keys; ++s) most = std::max(most, score(s));
      for (int64_t s = 0; s < keys; ++s) sum += std::exp(score(s) - most);
      const bool hidden = op.hidden_is_zero && std::isinf(most) && most < 0;
      const int64_t values = dot({at[0], group_of(at[1], q, v), 0, 0}, v.strides);
      const int64_t results = dot({at[0], at[1], at[2], 0}, y.strides);
      for (int64_t first = 0; first < y.dims[3]; first += kColumnsAtOnce) {
        const int64_t columns = std::min(y.dims[3] - first, kColumnsAtOnce);
        std::array<double, kColumnsAtOnce> totals{};
        for (int64_t s = 0; s < keys && !hidden; ++s) {
          const double weight = std::exp(score(s) - most) / sum;
          const int64_t value = values + s * v.strides[2] + first * v.strides[3];
          for (int64_t e = 0; e < columns; ++e)
            totals[static_cast<size_t>(e)] +=
                weight * static_cast<double>(E::load(v.data, value + e * v.strides[3]));
        }
        for (int64_t e = 0; e < columns; ++e)
          out.put(results + (first + e) * y.strides[3],
                  static_cast<typename E::Acc>(totals[static_cast<size_t>(e)]));
      }
    }
  });
}

void attention(const Attention& op, const ReferenceArgs& args) {
  const Dims dims = score_dims(args.inputs);
  const TensorView& q = args.inputs[0];
  std::byte* scratch = args.scratch + product_bytes(args.inputs);
  const TensorView k = in_type_of(q, args.inputs[1], scratch, args.team);
  const TensorView v = in_type_of(q, args.inputs[2], scratch, args.team);
  visit_float(q.dtype, [&]<class E>(E) {
    constexpr auto kScores = sizeof(typename E::Acc) == 8 ? DataType::kF64 : DataType::kF32;
    TensorView scores{kScores, dims, row_major_strides(dims), args.scratch};
    products<E>(args, k, scores);
    if (!op.score.empty())
      scores = mapped(op.score, dims, scores, args.inputs.subspan(3), scratch, args.team);
    visit_float(scores.dtype, [&]<class S>(S) { weigh<E, S>(op, args, v, scores); });
  });
}

constexpr KernelEntry kAttentionEntries[] = {
    reference<Attention, attention, scratch_bytes>("cpu.attention.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_attention_entries() { return kAttentionEntries; }

}  // namespace anneal::cpu
