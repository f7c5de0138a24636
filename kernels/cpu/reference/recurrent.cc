// LSTM, GRU, RNN and LinearAttention: one sequence after the other, step by step. States stay in
// f64 between steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/recurrent.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

double activate(Activation activation, double alpha, double beta, double x) {
  switch (activation) {
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kAffine:
      return alpha * x + beta;
    case Activation::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case Activation::kThresholdedRelu:
      return x <= alpha ? 0 : x;
    case Activation::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case Activation::kHardSigmoid: {
      const double line = alpha * x + beta;
      return line < 0 ? 0 : line > 1 ? 1 : line;
    }
    case Activation::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case Activation::kSoftsign:
      return x / (1 + std::fabs(x));
    case Activation::kSoftplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  fail(ErrorCode::kInternal, "an unknown activation");
}

// Memory of one sequence in one direction.
int64_t numbers_per_sequence(int64_t gates, int64_t hidden) { return (gates + 4) * hidden; }

template <class E>
class Sequence {
 public:
  Sequence(const Recurrent& op, const ReferenceArgs& args, int64_t direction, int64_t batch,
           double* memory)
      : op_(op),
        args_(args),
        direction_(direction),
        batch_(batch),
        hidden_(args.inputs[2].dims[2]),
        gates_(memory),
        h_(gates_ + gates_of(op.kind) * hidden_),
        c_(h_ + hidden_),
        next_(c_ + hidden_),
        reset_(next_ + hidden_) {}

  void run() {
    const int64_t steps = args_.inputs[0].dims[0];
    const int64_t length = args_.has(4) ? sequence_length(args_.inputs[4], batch_, steps) : steps;
    for (int64_t i = 0; i < hidden_; ++i) {
      h_[i] = number(5, {direction_, batch_, i});
      c_[i] = number(6, {direction_, batch_, i});
    }
    const bool reverse = op_.direction == Direction::kReverse || direction_ == 1;
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = reverse ? length - 1 - s : s;
      step(t);
      for (int64_t i = 0; i < hidden_; ++i) put(0, {t, direction_, batch_, i}, h_[i]);
    }
    for (int64_t t = length; t < steps; ++t)
      for (int64_t i = 0; i < hidden_; ++i) put(0, {t, direction_, batch_, i}, 0);
    for (int64_t i = 0; i < hidden_; ++i) {
      put(1, {direction_, batch_, i}, h_[i]);
      if (op_.kind == RecurrentKind::kLstm) put(2, {direction_, batch_, i}, c_[i]);
    }
  }

 private:
  // An element of an input; 0 if the input is absent.
  double number(size_t input, const Dims& at) const {
    if (!args_.has(input)) return 0;
    const TensorView& view = args_.inputs[input];
    return E::load(view.data, dot(at, view.strides));
  }
  void put(size_t result, const Dims& at, double value) const {
    using Acc = typename E::Acc;
    const TensorView& view = args_.results[result];
    ResultElements<Acc>(view).put(dot(at, view.strides), static_cast<Acc>(value));
  }

  // Row `row` of weights times a vector.
  double recurrence(int64_t row, const double* h) const {
    const TensorView& r = args_.inputs[2];
    int64_t at = dot({direction_, row, 0}, r.strides);
    double sum = 0;
    for (int64_t k = 0; k < hidden_; ++k, at += r.strides[2]) sum += E::load(r.data, at) * h[k];
    return sum;
  }
  double projection(int64_t row, int64_t t) const {
    const TensorView &x = args_.inputs[0], &w = args_.inputs[1];
    int64_t x_at = dot({t, batch_, 0}, x.strides), w_at = dot({direction_, row, 0}, w.strides);
    double sum = 0;
    for (int64_t k = 0; k < x.dims[2]; ++k, x_at += x.strides[2], w_at += w.strides[2])
      sum += static_cast<double>(E::load(x.data, x_at)) * E::load(w.data, w_at);
    return sum + number(3, {direction_, row});
  }
  double recurrent_bias(int64_t row) const {
    return number(3, {direction_, gates_of(op_.kind) * hidden_ + row});
  }

  double clipped(double x) const {
    if (op_.clip == 0) return x;
    return x < -op_.clip ? -op_.clip : x > op_.clip ? op_.clip : x;
  }
  // which: 0 the gates', 1 the cell's, 2 the output's, whose input is the one that is not clipped.
  double activated(size_t which, double x) const {
    const Activation kinds[] = {op_.gate, op_.cell, op_.output};
    return activate(kinds[which], op_.alphas.empty() ? 0 : op_.alphas[which],
                    op_.betas.empty() ? 0 : op_.betas[which], which == 2 ? x : clipped(x));
  }

  void step(int64_t t) {
    switch (op_.kind) {
      case RecurrentKind::kRnn:
        for (int64_t i = 0; i < hidden_; ++i)
          next_[i] = activated(1, projection(i, t) + recurrence(i, h_) + recurrent_bias(i));
        std::copy(next_, next_ + hidden_, h_);
        return;
      case RecurrentKind::kGru:
        return step_gru(t);
      case RecurrentKind::kLstm:
        return step_lstm(t);
    }
  }

  // z, r, h
  void step_gru(int64_t t) {
    for (int64_t j = 0; j < 2 * hidden_; ++j)
      gates_[j] = activated(0, projection(j, t) + recurrence(j, h_) + recurrent_bias(j));
    const double *z = gates_, *r = gates_ + hidden_;
    for (int64_t i = 0; i < hidden_; ++i) reset_[i] = r[i] * h_[i];
    for (int64_t i = 0; i < hidden_; ++i) {
      const int64_t row = 2 * hidden_ + i;
      const double recurrent = op_.linear_before_reset
                                   ? r[i] * (recurrence(row, h_) + recurrent_bias(row))
                                   : recurrence(row, reset_) + recurrent_bias(row);
      const double candidate = activated(1, projection(row, t) + recurrent);
      next_[i] = (1 - z[i]) * candidate + z[i] * h_[i];
    }
    std::copy(next_, next_ + hidden_, h_);
  }

  // i, o, f, c
  void step_lstm(int64_t t) {
    for (int64_t j = 0; j < 4 * hidden_; ++j)
      gates_[j] = projection(j, t) + recurrence(j, h_) + recurrent_bias(j);
    for (int64_t i = 0; i < hidden_; ++i) {
      const auto peephole = [&](int64_t gate) {
        return number(7, {direction_, gate * hidden_ + i});
      };
      const double input = activated(0, gates_[i] + peephole(0) * c_[i]);
      const double forget = op_.input_forget
                                ? 1 - input
                                : activated(0, gates_[2 * hidden_ + i] + peephole(2) * c_[i]);
      c_[i] = forget * c_[i] + input * activated(1, gates_[3 * hidden_ + i]);
      const double output = activated(0, gates_[hidden_ + i] + peephole(1) * c_[i]);
      h_[i] = output * activated(2, c_[i]);
    }
  }

  const Recurrent& op_;
  const ReferenceArgs& args_;
  int64_t direction_, batch_, hidden_;
  double *gates_, *h_, *c_, *next_, *reset_;
};

void recurrent(const Recurrent& op, const ReferenceArgs& args) {
  const Dims& h = args.results[1].dims;
  const int64_t sequences = h[0] * h[1];
  const int64_t numbers = numbers_per_sequence(gates_of(op.kind), h[2]);
  visit_float(args.inputs[0].dtype, [&]<class E>(E) {
    args.team.for_ranges(sequences, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        Sequence<E>(op, args, i / h[1], i % h[1],
                    reinterpret_cast<double*>(args.scratch) + i * numbers)
            .run();
    });
  });
}

size_t recurrent_scratch(const Recurrent& op, std::span<const TensorView>,
                         std::span<const TensorView> results) {
  const Dims& h = results[1].dims;
  return static_cast<size_t>(h[0] * h[1] * numbers_per_sequence(gates_of(op.kind), h[2])) *
         sizeof(double);
}

// One head of one sequence of LinearAttention.
class LinearHead {
 public:
  LinearHead(const LinearAttention& op, const ReferenceArgs& args, int64_t batch, int64_t head,
             double* state)
      : op_(op), args_(args), batch_(batch), head_(head), state_(state) {}

  void run() {
    for_state([&](double& s, const Dims& at) { s = args_.has(kState) ? number(kState, at) : 0; });
    for (int64_t t = 0; t < args_.inputs[kV].dims[1]; ++t) {
      if (args_.has(kDecay)) decay(t);
      for (int64_t j = 0; j < v_width(); ++j) write(t, j);
      read(t);
    }
    const TensorView& to = args_.results[1];
    for_state([&](double& s, const Dims& at) {
      to.as<float>()[dot(at, to.strides)] = static_cast<float>(s);
    });
  }

 private:
  enum Input { kQ, kK, kV, kState, kDecay, kBeta };

  int64_t k_width() const { return args_.inputs[kK].dims[3]; }
  int64_t v_width() const { return args_.inputs[kV].dims[3]; }
  double& state(int64_t i, int64_t j) { return state_[i * v_width() + j]; }
  double number(Input input, const Dims& at) const {
    return args_.inputs[input].as<const float>()[dot(at, args_.inputs[input].strides)];
  }
  // The head of an input that has fewer: consecutive ones share it.
  int64_t shared(Input input) const {
    return head_ / (args_.inputs[kV].dims[2] / args_.inputs[input].dims[2]);
  }
  void for_state(auto&& visit) {
    for (int64_t i = 0; i < k_width(); ++i)
      for (int64_t j = 0; j < v_width(); ++j)
        visit(state(i, j), op_.transposed ? Dims{batch_, head_, j, i} : Dims{batch_, head_, i, j});
  }
  void decay(int64_t t) {
    const bool is_by_row = args_.inputs[kDecay].dims[3] > 1;
    for (int64_t i = 0; i < k_width(); ++i) {
      const double factor = std::exp(number(kDecay, {batch_, t, head_, is_by_row ? i : 0}));
      for (int64_t j = 0; j < v_width(); ++j) state(i, j) *= factor;
    }
  }
  void write(int64_t t, int64_t j) {
    double v = number(kV, {batch_, t, head_, j});
    const auto key = [&](int64_t i) { return number(kK, {batch_, t, shared(kK), i}); };
    if (args_.has(kBeta)) {
      const bool is_by_head = args_.inputs[kBeta].dims[2] > 1;
      for (int64_t i = 0; i < k_width(); ++i) v -= key(i) * state(i, j);
      v *= number(kBeta, {batch_, t, is_by_head ? head_ : 0});
    }
    for (int64_t i = 0; i < k_width(); ++i) state(i, j) += key(i) * v;
  }
  void read(int64_t t) {
    const TensorView& y = args_.results[0];
    const int64_t heads = args_.inputs[kV].dims[2], queries = args_.inputs[kQ].dims[2];
    const int64_t readers = std::max<int64_t>(queries / heads, 1);
    for (int64_t head = head_ * readers; head < (head_ + 1) * readers; ++head)
      for (int64_t j = 0; j < v_width(); ++j) {
        double sum = 0;
        for (int64_t i = 0; i < k_width(); ++i)
          sum += state(i, j) * number(kQ, {batch_, t, queries < heads ? shared(kQ) : head, i});
        y.as<float>()[dot({batch_, t, head, j}, y.strides)] =
            static_cast<float>(sum * double{op_.scale});
      }
  }

  const LinearAttention& op_;
  const ReferenceArgs& args_;
  int64_t batch_, head_;
  double* state_;
};

void linear_attention(const LinearAttention& op, const ReferenceArgs& args) {
  const Dims& state = args.results[1].dims;
  args.team.for_ranges(state[0] * state[1], 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      LinearHead(op, args, i / state[1], i % state[1],
                 reinterpret_cast<double*>(args.scratch) + i * state[2] * state[3])
          .run();
  });
}

size_t linear_attention_scratch(std::span<const TensorView>, std::span<const TensorView> results) {
  return static_cast<size_t>(count(results[1].dims)) * sizeof(double);
}

constexpr KernelEntry kRecurrentEntries[] = {
    reference<Recurrent, recurrent, recurrent_scratch>("cpu.recurrent.reference"),
    reference<LinearAttention, linear_attention, linear_attention_scratch>(
        "cpu.linear_attention.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_recurrent_entries() { return kRecurrentEntries; }

int64_t sequence_length(const TensorView& lengths, int64_t batch, int64_t steps) {
  const int64_t length = lengths.as<const int32_t>()[batch * lengths.strides[0]];
  if (length < 0 || length > steps)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("sequence {} has a length of {} of {} steps", batch, length, steps));
  return length;
}

}  // namespace anneal::cpu
