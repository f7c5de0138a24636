// LSTM, GRU and RNN: "cpu.recurrent". The input's part of all gates is one product per chunk of
// steps; then each sequence goes through the chunk's steps, and only there steps wait for another.
#include "anneal/kernels/cpu/reference/recurrent.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/recurrent/gate_weights.h"
#include "anneal/kernels/cpu/recurrent/recurrent_cell.h"

namespace anneal::cpu {
namespace {

enum Input { kX, kW, kR, kB, kLengths, kH0, kC0, kPeepholes };

struct PreparedRecurrent final : PreparedKernel {
  int64_t steps = 0, batch = 0, input = 0, hidden = 0, directions = 1;
  GateWeights w, r;
  int64_t chunk = 1;        // steps at a time
  int64_t pitch = 0;        // floats from one row of gates to the next
  int64_t state_pitch = 0;  // and of states
  int64_t reset_pitch = 0;  // GRU: of r * h, or of the product that r scales
  bool x_is_direct = false;
  int64_t x_row = 0;  // floats from one row of x to the next
  GemmBlocks blocks;
  int64_t sequences = 1;  // that go through the steps together
  // Offsets in the workspace.
  size_t w_at = 0, r_at = 0, bias_at = 0, recurrent_bias_at = 0, peepholes_at = 0;
  size_t x_at = 0, gates_at = 0, h_at = 0, c_at = 0, reset_at = 0;
};

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(const Recurrent& op, const Request& request)
      : op_(op),
        settings_(op),
        kernels_(f32_gemm(isa_of(request.device))),
        cell_(cell_functions(isa_of(request.device))),
        next_state_(op.kind == RecurrentKind::kRnn   ? cell_.rnn
                    : op.kind == RecurrentKind::kGru ? cell_.gru
                                                     : cell_.lstm) {
    packed_w_ = packed(request, kW);
    packed_r_ = packed(request, kR);
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView>, int threads) const override;
  void launch(const LaunchArgs& args) const override;

 private:
  struct Run {
    const PreparedRecurrent& p;
    const LaunchArgs& args;
    const std::byte *w, *r;
    float* floats(size_t at) const { return reinterpret_cast<float*>(args.workspace + at); }
    bool has(size_t input) const {
      return input < args.inputs.size() && args.inputs[input].data != nullptr;
    }
    float* state(size_t at, int64_t direction, int64_t sequence) const {
      return floats(at) + (direction * p.batch + sequence) * p.state_pitch;
    }
    float* gates(int64_t direction, int64_t step, int64_t sequence) const {
      return floats(p.gates_at) + ((direction * p.chunk + step) * p.batch + sequence) * p.pitch;
    }
  };

  std::optional<Tensor> packed(const Request& request, size_t input) const {
    const Tensor* weights = request.inputs[input].constant;
    if (weights == nullptr) return std::nullopt;
    const TensorView view = kernel_view(*weights);
    const GateWeights packing(kernels_, op_.kind, view.dims[0], view.dims[1] / gates_of(op_.kind),
                              view.dims[2]);
    return packed_constant(request, fmt::format("{} of input {}", packing.part(0).form(), input),
                           static_cast<size_t>(packing.bytes()), [&](std::byte* to) {
                             for_parts(request, view.dims[0] * packing.panels(), [&](int64_t i) {
                               packing.pack(view, i, to, PackTo::kMemory);
                             });
                           });
  }
  bool is_reverse(int64_t direction) const {
    return op_.direction == Direction::kReverse || direction == 1;
  }
  // Whether sequence n has no step t.
  static bool is_over(const Run& run, int64_t n, int64_t t) {
    if (!run.has(kLengths)) return false;
    const TensorView& lengths = run.args.inputs[kLengths];
    return t >= lengths.as<const int32_t>()[n * lengths.strides[0]];
  }
  bool resets_product() const { return op_.kind == RecurrentKind::kGru && op_.linear_before_reset; }

  void lay_out(PreparedRecurrent& p) const;
  void pack_weights(const Run& run) const;
  void start(const Run& run) const;
  void finish(const Run& run) const;
  void project(const Run& run, int64_t first, int64_t count) const;
  void project_block(const Run& run, int64_t first, int64_t count, int64_t item) const;
  void advance(const Run& run, int64_t first, int64_t count, int64_t direction, int64_t begin,
               int64_t end) const;
  void step(const Run& run, int64_t direction, int64_t row, int64_t t, int64_t begin,
            int64_t end) const;
  // sums += states * weights, or initial + states * weights.
  struct Product {
    const float* states = nullptr;
    int64_t state_pitch = 0;
    float* sums = nullptr;
    int64_t sum_pitch = 0;
    const float* initial = nullptr;
  };
  void add_product(const Run& run, int part, int64_t direction, const Product& product,
                   int64_t rows) const;

  Recurrent op_;
  CellSettings settings_;
  GemmKernels kernels_;
  CellFunctions cell_;
  void (*next_state_)(const CellSettings&, const CellRow&);
  std::optional<Tensor> packed_w_, packed_r_;  // if they are constants
};

int64_t padded(int64_t floats) { return align_up(floats, kCellPadding); }

// Rows a multiple of 4 KiB apart would push each other out of the first-level cache.
int64_t spread(int64_t pitch) { return pitch % 1024 == 0 ? pitch + kCellPadding : pitch; }

std::unique_ptr<PreparedKernel> RecurrentKernel::prepare(std::span<const TensorView> inputs,
                                                         std::span<const TensorView>,
                                                         int threads) const {
  static constexpr int64_t kMostFloats = 1 << 16, kLeastRows = 28, kMostRows = 128;
  auto made = std::make_unique<PreparedRecurrent>();
  PreparedRecurrent& p = *made;
  const TensorView &x = inputs[kX], &r = inputs[kR];
  p.steps = x.dims[0], p.batch = x.dims[1], p.input = x.dims[2];
  p.directions = r.dims[0], p.hidden = r.dims[2];
  if (p.batch == 0 || p.hidden == 0) return made;
  p.w = GateWeights(kernels_, op_.kind, p.directions, p.hidden, p.input);
  p.r = GateWeights(kernels_, op_.kind, p.directions, p.hidden, p.hidden);
  p.pitch = spread(p.w.columns() + kCellPadding);
  p.state_pitch = spread(padded(p.hidden));
  p.reset_pitch = spread(std::max(p.state_pitch, p.w.part(1).padded_columns()));

  const int64_t rows = std::clamp(kMostFloats / p.pitch, kLeastRows, kMostRows);
  const int64_t most = std::clamp<int64_t>(rows / p.batch, 1, std::max<int64_t>(p.steps, 1));
  const int64_t chunks = std::max<int64_t>(ceil_div(p.steps, most), 1);
  p.chunk = ceil_div(p.steps, chunks);
  p.blocks = GemmBlocks(kernels_, p.chunk * p.batch, p.w.columns(), p.input, p.directions, threads);
  const int64_t teams = std::clamp<int64_t>(threads / p.directions, 1, p.batch);
  p.sequences = ceil_div(p.batch, teams);

  const bool in_rows = p.batch == 1 || p.steps <= 1 || x.strides[0] == p.batch * x.strides[1];
  p.x_row = p.batch == 1 ? x.strides[0] : x.strides[1];
  p.x_is_direct = in_rows && (x.strides[2] == 1 || p.input <= 1) &&
                  (p.x_row % 1024 != 0 || p.chunk * p.batch < 8);
  if (!p.x_is_direct) p.x_row = spread(padded(p.input));
  lay_out(p);
  return made;
}

void RecurrentKernel::lay_out(PreparedRecurrent& p) const {
  const auto take = [&](int64_t bytes) {
    const size_t at = p.workspace_bytes;
    p.workspace_bytes += cache_aligned(static_cast<size_t>(bytes));
    return at;
  };
  const int64_t sequences = p.directions * p.batch;
  const int64_t rows = p.directions * p.chunk * p.batch;
  if (!packed_w_) p.w_at = take(p.w.bytes());
  if (!packed_r_) p.r_at = take(p.r.bytes());
  p.bias_at = take(p.directions * p.w.columns() * 4);
  p.recurrent_bias_at = take(p.directions * p.w.part(1).padded_columns() * 4);
  p.peepholes_at = take(p.directions * 3 * p.state_pitch * 4);
  if (!p.x_is_direct) p.x_at = take(rows * p.x_row * 4);
  p.gates_at = take(rows * p.pitch * 4);
  p.h_at = take(sequences * p.state_pitch * 4);
  if (op_.kind == RecurrentKind::kLstm) p.c_at = take(sequences * p.state_pitch * 4);
  if (op_.kind == RecurrentKind::kGru) p.reset_at = take(sequences * p.reset_pitch * 4);
}

void RecurrentKernel::launch(const LaunchArgs& args) const {
  const auto& p = static_cast<const PreparedRecurrent&>(*args.prepared);
  if (p.batch == 0 || p.hidden == 0) return;
  const Run run{p, args, packed_w_ ? packed_w_->bytes().data() : args.workspace + p.w_at,
                packed_r_ ? packed_r_->bytes().data() : args.workspace + p.r_at};
  pack_weights(run);
  start(run);
  for (int64_t first = 0; first < p.steps; first += p.chunk) {
    const int64_t count = std::min(p.chunk, p.steps - first);
    project(run, first, count);
    const int64_t groups = ceil_div(p.batch, p.sequences);
    args.team.for_ranges(p.directions * groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = i % groups * p.sequences;
        advance(run, first, count, i / groups, from, std::min(from + p.sequences, p.batch));
      }
    });
  }
  finish(run);
}

void RecurrentKernel::pack_weights(const Run& run) const {
  const PreparedRecurrent& p = run.p;
  for (const bool recurrent : {false, true}) {
    if (recurrent ? packed_r_.has_value() : packed_w_.has_value()) continue;
    const GateWeights& packing = recurrent ? p.r : p.w;
    const TensorView& weights = run.args.inputs[recurrent ? kR : kW];
    std::byte* to = run.args.workspace + (recurrent ? p.r_at : p.w_at);
    run.args.team.for_ranges(p.directions * packing.panels(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) packing.pack(weights, i, to);
    });
  }
}

// Biases, peepholes and first states, as the loops want them.
void RecurrentKernel::start(const Run& run) const {
  const PreparedRecurrent& p = run.p;
  const auto& inputs = run.args.inputs;
  const auto number = [&](size_t input, const Dims& at) {
    return run.has(input) ? inputs[input].as<const float>()[dot(at, inputs[input].strides)] : 0.0F;
  };
  if (run.has(kLengths))
    for (int64_t n = 0; n < p.batch; ++n) sequence_length(inputs[kLengths], n, p.steps);
  const int64_t columns = gates_of(op_.kind) * p.hidden, first = p.w.part(0).n;
  for (int64_t d = 0; d < p.directions; ++d) {
    float* bias = run.floats(p.bias_at) + d * p.w.columns();
    float* recurrent = run.floats(p.recurrent_bias_at) + d * p.w.part(1).padded_columns();
    std::fill(bias, bias + p.w.columns(), 0.0F);
    std::fill(recurrent, recurrent + p.w.part(1).padded_columns(), 0.0F);
    for (int64_t j = 0; j < columns; ++j) {
      const float of_w = number(kB, {d, j}), of_r = number(kB, {d, columns + j});
      const bool apart = resets_product() && j >= first;
      const int64_t at = j < first ? j : p.w.part(0).padded_columns() + j - first;
      bias[at] = apart ? of_w : of_w + of_r;
      if (apart) recurrent[j - first] = of_r;
    }
    for (int64_t i = 0; run.has(kPeepholes) && i < 3 * p.hidden; ++i)
      run.floats(p.peepholes_at)[(d * 3 + i / p.hidden) * p.state_pitch + i % p.hidden] =
          number(kPeepholes, {d, i});
    for (const auto& [at, input] : {std::pair{p.h_at, kH0}, std::pair{p.c_at, kC0}}) {
      if (input == kC0 && op_.kind != RecurrentKind::kLstm) continue;
      for (int64_t n = 0; n < p.batch; ++n) {
        float* state = run.state(at, d, n);
        for (int64_t i = 0; i < p.hidden; ++i) state[i] = number(input, {d, n, i});
        std::fill(state + p.hidden, state + p.state_pitch, 0.0F);
      }
    }
  }
}

void RecurrentKernel::finish(const Run& run) const {
  const PreparedRecurrent& p = run.p;
  for (size_t output = 1; output < run.args.outputs.size(); ++output) {
    const TensorView& to = run.args.outputs[output];
    for (int64_t d = 0; d < p.directions; ++d)
      for (int64_t n = 0; n < p.batch; ++n) {
        const float* from = run.state(output == 1 ? p.h_at : p.c_at, d, n);
        for (int64_t i = 0; i < p.hidden; ++i) to.as<float>()[dot({d, n, i}, to.strides)] = from[i];
      }
  }
}

// Steps [first, first + count), counted from where the direction begins; rows of gates are in the
// order of time.
void RecurrentKernel::project(const Run& run, int64_t first, int64_t count) const {
  const PreparedRecurrent& p = run.p;
  const TensorView& x = run.args.inputs[kX];
  if (!p.x_is_direct) {
    const int64_t rows = count * p.batch;
    const auto copy = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t d = i / rows, row = i % rows;
        const int64_t t = row / p.batch + (is_reverse(d) ? p.steps - first - count : first);
        const float* from = x.as<const float>() + t * x.strides[0] + row % p.batch * x.strides[1];
        float* to = run.floats(p.x_at) + (d * p.chunk * p.batch + row) * p.x_row;
        for (int64_t k = 0; k < p.input; ++k) to[k] = from[k * x.strides[2]];
      }
    };
    run.args.team.for_ranges(p.directions * rows, kGrain / (p.input + 1) + 1, copy);
  }
  run.args.team.for_ranges(p.directions * p.blocks.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) project_block(run, first, count, item);
  });
}

void RecurrentKernel::project_block(const Run& run, int64_t first, int64_t count,
                                    int64_t item) const {
  const PreparedRecurrent& p = run.p;
  const int64_t d = item / p.blocks.count(), within = item % p.blocks.count();
  const int64_t row = within / p.blocks.column_blocks * p.blocks.rows;
  const int64_t column = within % p.blocks.column_blocks * p.blocks.columns;
  GemmBlock block;
  block.rows = std::min(p.blocks.rows, count * p.batch - row);
  block.columns = std::min(p.blocks.columns, p.w.columns() - column);
  if (block.rows <= 0) return;
  const float* x = p.x_is_direct ? run.args.inputs[kX].as<const float>() +
                                       (is_reverse(d) ? p.steps - first - count : first) *
                                           run.args.inputs[kX].strides[0]
                                 : run.floats(p.x_at) + d * p.chunk * p.batch * p.x_row;
  const std::byte* panel =
      run.w + p.w.offset(d, 0) + column / kernels_.tile_columns * p.w.panel_bytes();
  block.a_stride = p.x_row * 4;
  block.panel_stride = p.w.panel_bytes();
  block.c = reinterpret_cast<std::byte*>(run.gates(d, 0, row) + column);
  block.c_stride = p.pitch;
  block.c_is_padded = true;
  block.initial =
      reinterpret_cast<const std::byte*>(run.floats(p.bias_at) + d * p.w.columns() + column);
  int64_t lane = 0;
  do {  // once even if x has no columns
    block.lanes = std::min(p.blocks.lanes, p.input - lane);
    block.a = reinterpret_cast<const std::byte*>(x + row * p.x_row + lane);
    block.b = panel + lane * kernels_.tile_columns * 4;
    kernels_.block(block);
    block.accumulate = true;
    lane += block.lanes;
  } while (lane < p.input);
}

// Sequences [begin, end) of a direction through the chunk's steps.
void RecurrentKernel::advance(const Run& run, int64_t first, int64_t count, int64_t direction,
                              int64_t begin, int64_t end) const {
  const PreparedRecurrent& p = run.p;
  const TensorView& y = run.args.outputs[0];
  const bool reverse = is_reverse(direction);
  const int64_t from = reverse ? p.steps - first - count : first;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t row = reverse ? count - 1 - s : s, t = from + row;
    step(run, direction, row, t, begin, end);
    for (int64_t n = begin; n < end; ++n) {
      float* to = y.as<float>() + dot({t, direction, n, 0}, y.strides);
      const float* h = run.state(p.h_at, direction, n);
      const bool over = is_over(run, n, t);
      if (y.strides[3] == 1 && !over) {
        std::memcpy(to, h, static_cast<size_t>(p.hidden) * sizeof(float));
      } else {
        for (int64_t i = 0; i < p.hidden; ++i) to[i * y.strides[3]] = over ? 0.0F : h[i];
      }
    }
  }
}

// Sequences that are over take part in the products, and keep their states.
void RecurrentKernel::step(const Run& run, int64_t direction, int64_t row, int64_t t, int64_t begin,
                           int64_t end) const {
  const PreparedRecurrent& p = run.p;
  const int64_t candidate_at = p.w.part(0).padded_columns();
  float* const gates = run.gates(direction, row, begin);
  float* const h = run.state(p.h_at, direction, begin);
  float* const reset = run.floats(p.reset_at) + (direction * p.batch + begin) * p.reset_pitch;
  const auto cell_row = [&](int64_t n) {
    CellRow cell{.hidden = p.hidden,
                 .gates = gates + (n - begin) * p.pitch,
                 .h = h + (n - begin) * p.state_pitch};
    switch (op_.kind) {
      case RecurrentKind::kRnn:
        break;
      case RecurrentKind::kGru:
        cell.candidate = cell.gates + candidate_at;
        if (resets_product()) cell.recurrent = reset + (n - begin) * p.reset_pitch;
        break;
      case RecurrentKind::kLstm:
        cell.c = run.state(p.c_at, direction, n);
        if (!run.has(kPeepholes)) break;
        cell.peepholes = run.floats(p.peepholes_at) + direction * 3 * p.state_pitch;
        cell.peephole_stride = p.state_pitch;
    }
    return cell;
  };

  add_product(run, 0, direction, {h, p.state_pitch, gates, p.pitch}, end - begin);
  if (op_.kind == RecurrentKind::kGru && resets_product()) {
    const float* bias = run.floats(p.recurrent_bias_at) + direction * p.w.part(1).padded_columns();
    add_product(run, 1, direction, {h, p.state_pitch, reset, p.reset_pitch, bias}, end - begin);
  } else if (op_.kind == RecurrentKind::kGru) {
    for (int64_t n = begin; n < end; ++n)
      cell_.gru_reset(settings_, cell_row(n), reset + (n - begin) * p.reset_pitch);
    add_product(run, 1, direction, {reset, p.reset_pitch, gates + candidate_at, p.pitch},
                end - begin);
  }
  for (int64_t n = begin; n < end; ++n)
    if (!is_over(run, n, t)) next_state_(settings_, cell_row(n));
}

void RecurrentKernel::add_product(const Run& run, int part, int64_t direction,
                                  const Product& product, int64_t rows) const {
  const PreparedRecurrent& p = run.p;
  GemmBlock block;
  block.rows = rows;
  block.columns = p.r.part(part).padded_columns();
  block.lanes = p.hidden;
  block.a = reinterpret_cast<const std::byte*>(product.states);
  block.a_stride = product.state_pitch * 4;
  block.b = run.r + p.r.offset(direction, part);
  block.panel_stride = p.r.panel_bytes();
  block.c = reinterpret_cast<std::byte*>(product.sums);
  block.c_stride = product.sum_pitch;
  block.c_is_padded = true;
  block.initial = reinterpret_cast<const std::byte*>(product.initial);
  block.accumulate = product.initial == nullptr;
  kernels_.block(block);
}

KernelResult make_recurrent(const Recurrent& op, const Request& request) {
  if (request.inputs[kX].type.dtype != DataType::kF32) return refuse("only f32");
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  return std::make_unique<RecurrentKernel>(op, request);
}

constexpr KernelEntry kRecurrentEntries[] = {entry<Recurrent, make_recurrent>("cpu.recurrent")};

}  // namespace

std::span<const KernelEntry> recurrent_entries() { return kRecurrentEntries; }

}  // namespace anneal::cpu
