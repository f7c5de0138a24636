// Loops over the lanes of tiles, the operands of one instruction, and short forms of both. No
// include guard: included once per target.
#include <hwy/highway.h>

#include <array>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes of a slot, constant or input. Steps are in lanes; the column step is 1 or, where one
// vector's worth stands for a whole row, 0.
struct Lanes {
  std::byte* data;
  int64_t row_step, column_step;
  template <class T>
  T* row(int64_t row) const {
    return reinterpret_cast<T*>(data) + row * row_step;
  }
};

// The lanes that one instruction works on. `width` is a multiple of 16 unless lanes are visited one
// by one.
struct Extent {
  int64_t rows = 1, width = 0;
};

template <size_t N>
Extent joined(Extent extent, const std::array<Lanes, N>& all) {
  if (extent.rows == 1) return extent;
  for (const Lanes& lanes : all)
    if (lanes.row_step != extent.width * lanes.column_step) return extent;
  return {1, extent.rows * extent.width};
}

// out = f(in...), vector by vector. F takes the tag first, then vectors of T; it returns a vector
// with lanes of the same size.
template <class T, class F, class... In>
HWY_INLINE void map_vectors(Extent extent, F f, Lanes out, In... in) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kStep = static_cast<int64_t>(HWY_LANES(T));
  extent = joined<sizeof...(In) + 1>(extent, {out, in...});
  for (int64_t row = 0; row < extent.rows; ++row) {
    T* const to = out.row<T>(row);
    const auto vectors = [&](int64_t i, auto... lanes) HWY_ATTR {
      const auto result = f(d, hn::LoadU(d, lanes.template row<T>(row) + i * lanes.column_step)...);
      hn::StoreU(hn::BitCast(d, result), d, to + i);
    };
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // where four times the code would gain little
    for (; i + 4 * kStep <= extent.width; i += 4 * kStep) {
      vectors(i, in...);
      vectors(i + kStep, in...);
      vectors(i + 2 * kStep, in...);
      vectors(i + 3 * kStep, in...);
    }
#endif
    for (; i < extent.width; i += kStep) vectors(i, in...);
  }
}

// out = f(in...), one lane at a time.
template <class Out, class... T, class F, class... In>
HWY_INLINE void map_lanes(Extent extent, F f, Lanes out, In... in) {
  for (int64_t row = 0; row < extent.rows; ++row) {
    Out* const to = out.row<Out>(row);
    for (int64_t i = 0; i < extent.width; ++i)
      to[i] = f(in.template row<T>(row)[i * in.column_step]...);
  }
}

// Bodies of `case`s: a loop over `in`, then "done".
#undef ANNEAL_UNARY
#define ANNEAL_UNARY(T, expression)                                                             \
  return (map_vectors<T>(                                                                       \
              extent, []([[maybe_unused]] auto d, auto a) HWY_ATTR { return expression; }, out, \
              in[0]),                                                                           \
          true)
#undef ANNEAL_BINARY
#define ANNEAL_BINARY(T, expression)                                                               \
  return (map_vectors<T>(                                                                          \
              extent, []([[maybe_unused]] auto d, auto a, auto b) HWY_ATTR { return expression; }, \
              out, in[0], in[1]),                                                                  \
          true)
#undef ANNEAL_LIBM
#define ANNEAL_LIBM(T, expression)                                \
  return (map_lanes<T, T>(                                        \
              valid, [](T a) { return expression; }, out, in[0]), \
          true)
#undef ANNEAL_LIBM2
#define ANNEAL_LIBM2(T, expression)                                           \
  return (map_lanes<T, T, T>(                                                 \
              valid, [](T a, T b) { return expression; }, out, in[0], in[1]), \
          true)

// Each of the following returns false for an opcode that it leaves to evaluate(). `extent` counts
// whole vectors, `valid` the lanes that matter.
struct Work {
  const TapeStep& step;
  Extent extent, valid;
  Lanes out;
  std::array<Lanes, 3> in;
};

// In tape_pairs.cc. REQUIRES: work.step.is_pair
void run_pair(const Work& work);

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
