// "cpu.topk.simd": a line's largest or smallest elements.
//
// Elements become integer keys in the same order: the first element has the greatest key, NaN above
// all, and zeros of both signs are equal. A line is read once, a few vectors at a time; one
// comparison with the last of the k best so far drops most elements, and the others are collected,
// until a selection leaves k candidates again. A key together with its position is one integer, so
// that no two candidates are equal and the result does not depend on how a line is cut. For a
// softmax, which keeps the order of its elements, the exponentials of a block are added up before
// the block is filtered.
#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/reduce/topk.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/reduce/topk_softmax.h"
#include "anneal/kernels/cpu/reference/reference.h"

#ifndef ANNEAL_KERNELS_CPU_TOPK_KEYS
#define ANNEAL_KERNELS_CPU_TOPK_KEYS
namespace anneal::cpu {

constexpr int64_t kPiece = 1024;    // elements that are filtered at a time
constexpr int64_t kMostLanes = 64;  // what a store may write behind the last one that counts
template <class Key>
struct CandidateBuffer {
  Key keys[kPiece + kMostLanes], at[kPiece + kMostLanes];
  int64_t count;
};

}  // namespace anneal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D32 = hn::ScalableTag<int32_t>;
using D64 = hn::ScalableTag<int64_t>;

HWY_INLINE hn::Vec<D32> key_of(hn::Vec<hn::ScalableTag<float>> value) {
  const hn::ScalableTag<float> f;
  const D32 d;
  const auto bits = hn::BitCast(d, hn::Add(value, hn::Zero(f)));  // of -0 that is 0
  const auto key = hn::Xor(
      bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(d, std::numeric_limits<int32_t>::max())));
  return hn::IfThenElse(hn::RebindMask(d, hn::Ne(value, value)),
                        hn::Set(d, std::numeric_limits<int32_t>::max()), key);
}

HWY_INLINE hn::Vec<D32> load_key(const float* p) {
  return key_of(hn::LoadU(hn::ScalableTag<float>(), p));
}
HWY_INLINE hn::Vec<D32> load_key(const Float16* p) {
  const hn::Rebind<hwy::float16_t, D32> halves;
  return key_of(hn::PromoteTo(hn::ScalableTag<float>(),
                              hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(p))));
}
HWY_INLINE hn::Vec<D32> load_key(const BFloat16* p) {
  const hn::Rebind<uint16_t, D32> halves;
  const hn::Rebind<uint32_t, D32> words;
  const auto bits = hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
  return key_of(hn::BitCast(hn::ScalableTag<float>(), hn::ShiftLeft<16>(bits)));
}
HWY_INLINE hn::Vec<D32> load_key(const int32_t* p) { return hn::LoadU(D32(), p); }
HWY_INLINE hn::Vec<D64> load_key(const int64_t* p) { return hn::LoadU(D64(), p); }
template <class T>
HWY_INLINE hn::Vec<D32> load_key(const T* p) {
  return hn::PromoteTo(D32(), hn::LoadU(hn::Rebind<T, D32>(), p));
}

template <class T, class Key>
void filter_of(const std::byte* from, int64_t n, bool largest, Key least,
               CandidateBuffer<Key>& to) {
  const hn::ScalableTag<Key> d;
  constexpr auto kLanes = static_cast<int64_t>(HWY_LANES(Key));
  const T* const x = reinterpret_cast<const T*>(from);
  const auto flip = hn::Set(d, largest ? Key{0} : Key{-1}), bound = hn::Set(d, least);
  const auto key = [&](const T* p) HWY_ATTR { return hn::Xor(load_key(p), flip); };
  int64_t count = 0;
  // out: those that are less; before AVX-512 integers are compared by "greater" alone.
  const auto keep = [&](auto keys, auto out, int64_t i) HWY_ATTR {
    const auto mask = hn::Not(out);
#if HWY_TARGET == HWY_AVX2
    // Lane by lane: GCC copies the table of Highway's Compress each time that it is used.
    HWY_ALIGN Key lanes[kLanes];
    hn::Store(keys, d, lanes);
    uint8_t kept[8];
    hn::StoreMaskBits(d, mask, kept);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      to.keys[count] = lanes[lane];
      to.at[count] = static_cast<Key>(i + lane);
      count += kept[0] >> lane & 1;
    }
#else
    // Whole vectors are stored: a compressed store of fewer lanes takes longer.
    hn::StoreU(hn::Compress(keys, mask), d, to.keys + count);
    hn::StoreU(hn::Compress(hn::Iota(d, static_cast<Key>(i)), mask), d, to.at + count);
    count += static_cast<int64_t>(hn::CountTrue(d, mask));
#endif
  };
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const auto k0 = key(x + i), k1 = key(x + i + kLanes), k2 = key(x + i + 2 * kLanes),
               k3 = key(x + i + 3 * kLanes);
    const auto out0 = hn::Gt(bound, k0), out1 = hn::Gt(bound, k1), out2 = hn::Gt(bound, k2),
               out3 = hn::Gt(bound, k3);
    if (hn::AllTrue(d, hn::And(hn::And(out0, out1), hn::And(out2, out3)))) continue;
    keep(k0, out0, i);
    keep(k1, out1, i + kLanes);
    keep(k2, out2, i + 2 * kLanes);
    keep(k3, out3, i + 3 * kLanes);
  }
  for (; i < n; i += kLanes) {
    T rest[HWY_LANES(Key)] = {};
    std::copy(x + i, x + std::min(i + kLanes, n), rest);
    const auto keys = key(rest);
    const auto inside = hn::FirstN(d, static_cast<size_t>(std::min(kLanes, n - i)));
    keep(keys, hn::Or(hn::Gt(bound, keys), hn::Not(inside)), i);
  }
  to.count = count;
}

}  // namespace

// For n <= kPiece adjacent elements: the keys that are at least `least`, and their positions.
void filter_32(DataType dtype, const std::byte* from, int64_t n, bool largest, int32_t least,
               CandidateBuffer<int32_t>& to) {
  switch (dtype) {
    case DataType::kF32:
      return filter_of<float>(from, n, largest, least, to);
    case DataType::kF16:
      return filter_of<Float16>(from, n, largest, least, to);
    case DataType::kBF16:
      return filter_of<BFloat16>(from, n, largest, least, to);
    case DataType::kI8:
      return filter_of<int8_t>(from, n, largest, least, to);
    case DataType::kU8:
      return filter_of<uint8_t>(from, n, largest, least, to);
    default:
      return filter_of<int32_t>(from, n, largest, least, to);
  }
}
void filter_64(DataType, const std::byte* from, int64_t n, bool largest, int64_t least,
               CandidateBuffer<int64_t>& to) {
  filter_of<int64_t>(from, n, largest, least, to);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

// A key, and below it the position, counted down: of equal keys the first one is greater.
using Candidate = unsigned __int128;
constexpr uint64_t kSign = uint64_t{1} << 63;
Candidate candidate(int64_t key, int64_t at) {
  return Candidate{static_cast<uint64_t>(key) ^ kSign} << 64 | ~static_cast<uint64_t>(at);
}
int64_t key_of(Candidate c) { return static_cast<int64_t>(static_cast<uint64_t>(c >> 64) ^ kSign); }
int64_t position_of(Candidate c) { return static_cast<int64_t>(~static_cast<uint64_t>(c)); }

// A part of a line is worth a thread if it has at least kLeastPart elements, and at least kTimesK
// times k.
constexpr int64_t kLeastPart = 16384, kTimesK = 4;
// A selection starts from at least this number of candidates, or 2 k.
constexpr int64_t kLeastHeld = 64;
// A line is read in such blocks; those that do not lie as adjacent elements are copied.
constexpr int64_t kBlock = TopKSoftmax::kBlock;

struct PreparedTopK final : PreparedKernel {
  Dims dims, of_x, of_values, of_indices;  // of the lines
  int64_t lines = 0, size = 0, k = 0, step = 0;
  int64_t parts = 1;   // of a line
  int64_t blocks = 0;  // of a line, if it is a softmax
  // For each thread: candidates, and sums of a line. For lines in parts: results of the parts, and
  // sums.
  size_t sums_at = 0, part_bytes = 0, kept_at = 0, kept_sums_at = 0;

  int64_t enough() const { return std::max(2 * k, kLeastHeld); }
  // Where a part of a line begins: with a block.
  int64_t begin_of(int64_t part) const {
    return part == parts ? size : size * part / parts / kBlock * kBlock;
  }
  // f(element of x, of values, of indices) for the lines [begin, end).
  template <class F>
  void for_lines(int64_t begin, int64_t end, F f) const {
    Walk<3>(dims, {of_x, of_values, of_indices}).for_elements(begin, end, [&](const auto& at) {
      f(at[0], at[1], at[2]);
    });
  }
};

template <class T>
void gather_as(const std::byte* from, int64_t step, int64_t n, std::byte* to) {
  for (int64_t i = 0; i < n; ++i)
    reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[i * step];
}
void gather(size_t size, const std::byte* from, int64_t step, int64_t n, std::byte* to) {
  switch (size) {
    case 1:
      return gather_as<uint8_t>(from, step, n, to);
    case 2:
      return gather_as<uint16_t>(from, step, n, to);
    case 4:
      return gather_as<uint32_t>(from, step, n, to);
    default:
      return gather_as<uint64_t>(from, step, n, to);
  }
}

void leave_first(Candidate* held, int64_t k, int64_t count) {
  if (k >= count) return;
  // With small k, nearly all comparisons have the same answer, unlike those of a partition.
  if (k <= 4) return std::partial_sort(held, held + k, held + count, std::greater<>());
  std::nth_element(held, held + k - 1, held + count, std::greater<>());
}

template <class Key>
class Filters {
 public:
  using Function = void (*)(DataType, const std::byte*, int64_t, bool, Key, CandidateBuffer<Key>&);
  // softmax: null, or the softmax of the values.
  Filters(Function filter, const TopK& op, DataType dtype, const TopKSoftmax* softmax)
      : filter_(filter), dtype_(dtype), largest_(op.largest), softmax_(softmax) {}

  // The first k of elements [begin, end) of a line, or all if they are fewer, in any order. sums:
  // of the line's blocks, of which those of these elements are found. REQUIRES: begin is a block's
  void select(const PreparedTopK& p, const std::byte* line, int64_t begin, int64_t end,
              Candidate* held, ExpSum* sums) const {
    const auto size = static_cast<int64_t>(size_of(dtype_));
    CandidateBuffer<Key> met;
    alignas(64) std::byte block[kBlock * sizeof(Key)];
    const std::byte* from = nullptr;
    Key least = std::numeric_limits<Key>::lowest();
    int64_t count = 0, block_end = begin;
    if (softmax_) std::fill(sums + begin / kBlock, sums + ceil_div(end, kBlock), ExpSum());
    for (int64_t i = begin, n; i < end; i += n, from += n * size) {
      if (i == block_end) {
        block_end = std::min(i + kBlock, end);
        from = line + i * p.step * size;
        if (p.step != 1) {
          gather(size_of(dtype_), from, p.step, block_end - i, block);
          from = block;
        }
        if (softmax_) sums[i / kBlock] = softmax_->sum_of(from, block_end - i);
      }
      n = std::min(count < p.k ? std::min(p.enough(), kPiece) : kPiece, block_end - i);
      filter_(dtype_, from, n, largest_, least, met);
      for (int64_t c = 0; c < met.count; ++c)
        held[count++] = candidate(met.keys[c], i + static_cast<int64_t>(met.at[c]));
      if (count < p.enough()) continue;
      leave_first(held, p.k, count);
      count = p.k;
      const int64_t last = key_of(held[p.k - 1]);
      // No later element is greater. If this one is NaN, so is the sum.
      if (last == std::numeric_limits<Key>::max()) return;
      least = static_cast<Key>(last + 1);
    }
    leave_first(held, p.k, count);
  }

 private:
  Function filter_;
  DataType dtype_;
  bool largest_;
  const TopKSoftmax* softmax_;
};

class SimdTopK final : public Kernel {
 public:
  SimdTopK(const TopK& op, DataType dtype, Isa isa) : op_(op), isa_(isa) {
    if (op.of != TopKOf::kValues) softmax_.emplace(dtype, op.of == TopKOf::kLogSoftmax, isa);
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedTopK>();
    PreparedTopK& p = *made;
    const TensorView &x = inputs[0], &values = outputs[0], &indices = outputs[1];
    const int along = static_cast<int>(op_.axis);
    p.size = x.dims[along];
    p.step = x.strides[along];
    p.k = values.dims[along];
    for (int axis = 0; axis < x.dims.rank(); ++axis) {
      if (axis == along) continue;
      p.dims.push_back(x.dims[axis]);
      p.of_x.push_back(x.strides[axis]);
      p.of_values.push_back(values.strides[axis]);
      p.of_indices.push_back(indices.strides[axis]);
    }
    p.lines = count(p.dims);
    if (p.k == 0 || p.k > p.size || p.lines == 0) return made;
    if (p.lines < threads)
      p.parts = std::clamp<int64_t>(p.size / std::max(kLeastPart, kTimesK * p.k), 1, threads);
    if (softmax_) p.blocks = ceil_div(p.size, kBlock);
    const auto candidates = [](int64_t n) {
      return cache_aligned(sizeof(Candidate) * static_cast<size_t>(n));
    };
    const auto sums = [](int64_t n) {
      return cache_aligned(sizeof(ExpSum) * static_cast<size_t>(n));
    };
    p.sums_at = candidates(std::min(p.size, p.enough() + kPiece));
    p.part_bytes = p.sums_at + (p.parts > 1 ? 0 : sums(p.blocks));
    p.kept_at = p.kept_sums_at = p.workspace_bytes = p.part_bytes * static_cast<size_t>(threads);
    if (p.parts > 1) {
      p.kept_sums_at += candidates(p.lines * p.parts * p.k);
      p.workspace_bytes = p.kept_sums_at + sums(p.lines * p.blocks);
    }
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedTopK&>(*args.prepared);
    if (p.k > p.size) fail(ErrorCode::kInvalidArgument, "TopK: k is more than there are elements");
    if (p.k == 0 || p.lines == 0) return;
    const DataType dtype = args.inputs[0].dtype;
    const TopKSoftmax* const softmax = softmax_ ? &*softmax_ : nullptr;
    if (dtype == DataType::kI64) {
      run(p, args, Filters<int64_t>(ANNEAL_BY_ISA(isa_, filter_64), op_, dtype, softmax));
    } else {
      run(p, args, Filters<int32_t>(ANNEAL_BY_ISA(isa_, filter_32), op_, dtype, softmax));
    }
  }

 private:
  template <class Key>
  void run(const PreparedTopK& p, const LaunchArgs& args, const Filters<Key>& filters) const;
  // Where the elements of a line begin.
  struct Line {
    int64_t x, value, index;
  };
  void finish(const PreparedTopK& p, const LaunchArgs& args, const Line& line, Candidate* first,
              const ExpSum* sums) const;
  void store_softmax(const PreparedTopK& p, const LaunchArgs& args, const Line& line,
                     const Candidate* first, const ExpSum* sums) const;

  TopK op_;
  Isa isa_;
  std::optional<TopKSoftmax> softmax_;
};

template <class Key>
void SimdTopK::run(const PreparedTopK& p, const LaunchArgs& args,
                   const Filters<Key>& filters) const {
  const auto size = static_cast<int64_t>(size_of(args.inputs[0].dtype));
  const std::byte* const x = args.inputs[0].data;
  const auto held = [&] {
    return reinterpret_cast<Candidate*>(part_of(args.team, args.workspace, p.part_bytes));
  };
  if (p.parts == 1)
    return args.team.for_ranges(p.lines, kGrain / p.size + 1, [&](int64_t begin, int64_t end) {
      auto* const sums =
          reinterpret_cast<ExpSum*>(part_of(args.team, args.workspace, p.part_bytes) + p.sums_at);
      p.for_lines(begin, end, [&](int64_t of_x, int64_t value, int64_t index) {
        filters.select(p, x + of_x * size, 0, p.size, held(), sums);
        finish(p, args, {of_x, value, index}, held(), sums);
      });
    });
  auto* const kept = reinterpret_cast<Candidate*>(args.workspace + p.kept_at);
  auto* const sums = reinterpret_cast<ExpSum*>(args.workspace + p.kept_sums_at);
  args.team.for_ranges(p.lines * p.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t line = i / p.parts, part = i % p.parts;
      p.for_lines(line, line + 1, [&](int64_t of_x, int64_t, int64_t) {
        filters.select(p, x + of_x * size, p.begin_of(part), p.begin_of(part + 1), held(),
                       sums + line * p.blocks);
      });
      std::copy(held(), held() + p.k, kept + i * p.k);
    }
  });
  args.team.for_ranges(p.lines, 1, [&](int64_t begin, int64_t end) {
    int64_t line = begin;
    p.for_lines(begin, end, [&](int64_t of_x, int64_t value, int64_t index) {
      Candidate* const first = kept + line * p.parts * p.k;
      leave_first(first, p.k, p.parts * p.k);
      finish(p, args, {of_x, value, index}, first, sums + line * p.blocks);
      ++line;
    });
  });
}

// Puts the first k of a line in order and stores them.
void SimdTopK::finish(const PreparedTopK& p, const LaunchArgs& args, const Line& line,
                      Candidate* first, const ExpSum* sums) const {
  std::sort(first, first + p.k, std::greater<>());
  if (softmax_) store_softmax(p, args, line, first, sums);
  const TensorView &from = args.inputs[0], &values = args.outputs[0], &indices = args.outputs[1];
  const int axis = static_cast<int>(op_.axis);
  for (int64_t i = 0; i < p.k; ++i) {
    const int64_t at = position_of(first[i]);
    if (!softmax_)
      copy_element(from, line.x + at * p.step, values, line.value + i * values.strides[axis]);
    indices.as<int64_t>()[line.index + i * indices.strides[axis]] = at;
  }
}

void SimdTopK::store_softmax(const PreparedTopK& p, const LaunchArgs& args, const Line& line,
                             const Candidate* first, const ExpSum* sums) const {
  const ExpSum whole = std::accumulate(sums, sums + p.blocks, ExpSum(), joined);
  const ResultElements<float> from(args.inputs[0]), to(args.outputs[0]);
  const int64_t step = args.outputs[0].strides[static_cast<int>(op_.axis)];
  float picked[kPiece];
  for (int64_t i = 0, n; i < p.k; i += n) {
    n = std::min(kPiece, p.k - i);
    for (int64_t j = 0; j < n; ++j)
      picked[j] = from.get(line.x + position_of(first[i + j]) * p.step);
    softmax_->apply(whole, picked, n);
    for (int64_t j = 0; j < n; ++j) to.put(line.value + (i + j) * step, picked[j]);
  }
}

KernelResult make_simd(const TopK& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  const DataType dtype = request.inputs[0].type.dtype;
  switch (dtype) {
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kI8:
    case DataType::kU8:
    case DataType::kI32:
    case DataType::kI64:
      return std::make_unique<SimdTopK>(op, dtype, isa_of(request.device));
    default:
      return refuse("only f32, f16, bf16, i32, i64 and 8-bit elements");
  }
}

constexpr KernelEntry kTopkEntries[] = {
    entry<TopK, make_simd>("cpu.topk.simd"),
};

}  // namespace

std::span<const KernelEntry> topk_entries() { return kTopkEntries; }

}  // namespace anneal::cpu
#endif
