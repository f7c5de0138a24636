// Recurrent layers (LSTM, GRU, RNN): next states from the state before, step by step.
//
// A block has one direction, kRows sequences and a part of the units of the state. A warp computes
// one unit at a time: its lanes share the sums over the state and the input of all gates, and lane
// n then has the unit of sequence n. Step s reads state s % 2 and writes the other one, so that a
// launch may be one step of many blocks, or all steps of blocks that have all units.
//
//   launch s:      block 0        block 1     ...      or one launch:   block 0
//                  units 0..15    units 16..31                          all units, steps 0, 1, ...
//   state s % 2  ---read by all------------------
//   state other    written        written
//
// Sequences that have ended keep their state, and give 0.
//
// Layer gives Acc, Index, Cell, kRows, kFromState (whether the candidate of a GRU is computed from
// r * h, which needs all units of r first), kProjected (whether the input's sums are given), and
//   steps(), batch(), units(), input(), directions()   sizes
//   reverse(d), length(n)                       of a direction; steps of a sequence, 0..steps()
//   x(t, n, k), w(d, row, k), r(d, row, k)      elements; a row is a unit of a gate
//   projected(d, t, n, row)                     kProjected: the sum of x * w over k
//   input_bias(d, row), bias(d, row)            of w and of r
//   peephole(d, row), first_h(d, n, i), first_c(d, n, i)
//   put_y(t, d, n, i, h), put_h(d, n, i, h), put_c(d, n, i, c)
//   gate(x), cell(x), output(x)                 activations, with their clip
//   states, cells, updates, resets              memory: of h twice, of c, of z and r * h
#pragma once

namespace recurrent {

template <class T>
__device__ inline T limited(T x, T low, T high) {  // NaN stays
  return x < low ? low : x > high ? high : x;
}

// sums[g] += weight(g, k) * vector(n, k) over the k of this lane, for `count` gates; what the last
// one has is added to sums[last].
template <int count, int last, class Acc, int all, int rows, class I, class Weight, class Vector>
__device__ inline void add_products(Acc (&sums)[all][rows], I depth, Weight weight, Vector vector) {
  for (I k = I(threadIdx.x % 32); k < depth; k += 32) {
    Acc of_row[rows];
    UNROLL
    for (int n = 0; n < rows; ++n) of_row[n] = vector(n, k);
    UNROLL
    for (int g = 0; g < count; ++g) {
      const Acc factor = weight(g, k);
      UNROLL
      for (int n = 0; n < rows; ++n) {
        Acc& sum = sums[g + 1 == count ? last : g][n];
        sum = multiply_add(factor, of_row[n], sum);
      }
    }
  }
}

// The sums of all lanes for row n, in lane n.
template <class Acc, int all, int rows>
__device__ inline void give_rows(const Acc (&sums)[all][rows], Acc (&own)[all]) {
  const int lane = i32(threadIdx.x % 32);
  UNROLL
  for (int g = 0; g < all; ++g) {
    UNROLL
    for (int n = 0; n < rows; ++n) {
      Acc sum = sums[g][n];
      for (int distance = 16; distance > 0; distance /= 2) sum = sum + from_lane(sum, distance);
      if (n == 0 || lane == n) own[g] = sum;
    }
  }
}

// One step of the sequences of a block.
template <class Layer>
struct Step {
  using Acc = typename Layer::Acc;
  using I = typename Layer::Index;
  enum : int { kRows = Layer::kRows };

  const Layer& layer;
  I d, s;
  I row[kRows];   // sequences; beyond the batch the last one
  I time[kRows];  // their elements of x
  I own;          // of this lane; -1: none

  __device__ Step(const Layer& of, I direction, I first_row, I number)
      : layer(of), d(direction), s(number) {
    UNROLL
    for (int n = 0; n < kRows; ++n) {
      row[n] = op::min(I(first_row + n), I(layer.batch() - 1));
      const I length = layer.length(row[n]);
      time[n] = layer.reverse(d) && s < length ? I(length - 1 - s) : s;
    }
    const I lane = I(threadIdx.x % 32);
    own = lane < kRows && first_row + lane < layer.batch() ? I(first_row + lane) : I(-1);
  }

  __device__ I place(I n, I unit) const { return (d * layer.batch() + n) * layer.units() + unit; }
  __device__ I place_of_state(I number, I n, I unit) const {
    return place(n, unit) + number % 2 * (layer.directions() * layer.batch() * layer.units());
  }
  __device__ Acc state(I n, I unit) const {
    return s == 0 ? layer.first_h(d, n, unit) : Acc(layer.states[place_of_state(s, n, unit)]);
  }

  // The sums of `count` gates from `first` on for a unit, of x and of a vector; biases added. The
  // vector's part of the last gate is in sums[last].
  template <int all, int first, int count, int last, class Vector>
  __device__ void sum(I unit, Vector vector, Acc (&sums)[all]) const {
    Acc parts[all][kRows] = {};
    const auto row_of = [&](int g) { return I(first + g) * layer.units() + unit; };
    add_products<count, last>(
        parts, layer.units(), [&](int g, I k) { return layer.r(d, row_of(g), k); },
        [&](int n, I k) { return vector(row[n], k); });
    if constexpr (!Layer::kProjected)
      add_products<count, count - 1>(
          parts, layer.input(), [&](int g, I k) { return layer.w(d, row_of(g), k); },
          [&](int n, I k) { return layer.x(time[n], row[n], k); });
    give_rows(parts, sums);
    if (own < 0) return;
    UNROLL
    for (int g = 0; g < count; ++g) {
      sums[g] = sums[g] + layer.input_bias(d, row_of(g));
      if constexpr (Layer::kProjected)
        sums[g] = sums[g] + layer.projected(d, own_time(), own, row_of(g));
      Acc& recurrent = sums[g + 1 == count ? last : g];
      recurrent = recurrent + layer.bias(d, row_of(g));
    }
  }
  __device__ I own_time() const {
    I at = time[0];
    UNROLL
    for (int n = 1; n < kRows; ++n)
      if (own == row[n]) at = time[n];
    return at;
  }

  // Stores the next state of a unit of the own sequence; true: what the sequence has computed.
  __device__ void finish(I unit, bool goes_on, Acc h) const {
    layer.states[place_of_state(s + 1, own, unit)] = h;
    layer.put_y(own_time(), d, own, unit, goes_on ? h : Acc(0));
    if (s + 1 == layer.steps()) layer.put_h(d, own, unit, h);
  }
};

struct Rnn {
  template <class Step, class I>
  __device__ static void advance(const Step& step, I unit) {
    const auto& layer = step.layer;
    typename Step::Acc sums[1];
    step.template sum<1, 0, 1, 0>(
        unit, [&](I n, I k) { return step.state(n, k); }, sums);
    if (step.own < 0) return;
    const bool goes_on = step.s < layer.length(step.own);
    step.finish(unit, goes_on, goes_on ? layer.cell(sums[0]) : step.state(step.own, unit));
  }
};

template <bool input_forget>
struct Lstm {
  template <class Step, class I>
  __device__ static void advance(const Step& step, I unit) {
    using Acc = typename Step::Acc;
    const auto& layer = step.layer;
    const I d = step.d, own = step.own;
    Acc sums[4];  // i, o, f, c
    step.template sum<4, 0, 4, 3>(
        unit, [&](I n, I k) { return step.state(n, k); }, sums);
    if (own < 0) return;
    const bool goes_on = step.s < layer.length(own);
    const I at = step.place(own, unit);
    Acc c = step.s == 0 ? layer.first_c(d, own, unit) : Acc(layer.cells[at]);
    Acc h = step.state(own, unit);
    if (goes_on) {
      const auto peephole = [&](int gate) {
        return layer.peephole(d, I(gate) * layer.units() + unit) * c;
      };
      const Acc in = layer.gate(sums[0] + peephole(0));
      const Acc kept = input_forget ? Acc(1) - in : layer.gate(sums[2] + peephole(2));
      c = kept * c + in * layer.cell(sums[3]);
      h = layer.gate(sums[1] + peephole(1)) * layer.output(c);
    }
    layer.cells[at] = c;
    if (step.s + 1 == layer.steps()) layer.put_c(d, own, unit, c);
    step.finish(unit, goes_on, h);
  }
};

struct Gru {
  template <class Step, class I, class Acc>
  __device__ static void put_state(const Step& step, I unit, Acc update, Acc candidate) {
    const Acc old = step.state(step.own, unit);
    const bool goes_on = step.s < step.layer.length(step.own);
    step.finish(unit, goes_on, goes_on ? (Acc(1) - update) * candidate + update * old : old);
  }
  // r scales the product of the candidate.
  template <class Step, class I>
  __device__ static void advance(const Step& step, I unit) {
    const auto& layer = step.layer;
    typename Step::Acc sums[4];  // z, r, h of the input, h of the state
    step.template sum<4, 0, 3, 3>(
        unit, [&](I n, I k) { return step.state(n, k); }, sums);
    if (step.own < 0) return;
    put_state(step, unit, layer.gate(sums[0]), layer.cell(sums[2] + layer.gate(sums[1]) * sums[3]));
  }
  // r scales the state before the product, in two parts.
  template <class Step, class I>
  __device__ static void reset(const Step& step, I unit) {
    typename Step::Acc sums[2];
    step.template sum<2, 0, 2, 1>(
        unit, [&](I n, I k) { return step.state(n, k); }, sums);
    if (step.own < 0) return;
    const I at = step.place(step.own, unit);
    step.layer.updates[at] = step.layer.gate(sums[0]);
    step.layer.resets[at] = step.layer.gate(sums[1]) * step.state(step.own, unit);
  }
  template <class Step, class I>
  __device__ static void advance_from_reset(const Step& step, I unit) {
    using Acc = typename Step::Acc;
    const auto& layer = step.layer;
    Acc sums[1];
    step.template sum<1, 2, 1, 0>(
        unit, [&](I n, I k) { return Acc(layer.resets[step.place(n, k)]); }, sums);
    if (step.own < 0) return;
    put_state(step, unit, Acc(layer.updates[step.place(step.own, unit)]), layer.cell(sums[0]));
  }
};

// Steps [begin, end) of `unit_parts` blocks for each direction and kRows sequences. half: of a step
// with kFromState, which launches of one step take apart: 1 or 2; 0: both.
template <class Layer>
__device__ inline void run(const Layer& layer, i64 begin, i64 end, i64 unit_parts, i64 half) {
  using I = typename Layer::Index;
  const I parts = I(unit_parts), block = I(blockIdx.x);
  const I groups = (layer.batch() + Layer::kRows - 1) / Layer::kRows;
  const I group = block / parts % groups, d = block / parts / groups;
  const I each = (layer.units() + parts - 1) / parts, first = block % parts * each;
  const I last = op::min(I(first + each), layer.units());
  const I warp = I(threadIdx.x / 32), warps = I(blockDim.x / 32);
  const auto for_units = [&](auto advance) {
    for (I unit = first + warp; unit < last; unit += warps) advance(unit);
  };
  for (I s = I(begin); s < I(end); ++s) {
    if (s > I(begin)) __syncthreads();  // the state of step s - 1 has been written
    const Step<Layer> step(layer, d, group * Layer::kRows, s);
    if constexpr (Layer::kFromState) {
      if (half != 2) for_units([&](I unit) { Layer::Cell::reset(step, unit); });
      if (half == 0) __syncthreads();
      if (half != 1) for_units([&](I unit) { Layer::Cell::advance_from_reset(step, unit); });
    } else {
      for_units([&](I unit) { Layer::Cell::advance(step, unit); });
    }
  }
  if (layer.steps() > 0) return;
  const Step<Layer> none(layer, d, group * Layer::kRows, I(0));
  if (none.own < 0) return;
  for_units([&](I unit) {
    layer.put_h(d, none.own, unit, layer.first_h(d, none.own, unit));
    layer.put_c(d, none.own, unit, layer.first_c(d, none.own, unit));
  });
}

}  // namespace recurrent
