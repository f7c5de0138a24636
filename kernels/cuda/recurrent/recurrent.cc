// LSTM, GRU and RNN: "cuda.recurrent.steps". device/recurrent.h has the algorithm. The input's part
// of all gates and steps is one product, of a kernel of MatMul, unless there are few steps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/integer.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/recurrent/layer_text.h"
#include "anneal/kernels/cuda/text/operand_views.h"
#include "anneal/kernels/cuda/text/program_text.h"
#include "anneal/kernels/cuda/text/shape_text.h"

namespace anneal::cuda {
namespace {

constexpr int kMostCellThreads = 512, kCellThreads = 128;  // of a block: with all units, with some
constexpr int64_t kMostSequences = 4;                      // of a block
// From these on a product of its own is worth its launch.
constexpr int64_t kWorthProductSteps = 4, kWorthProductInput = 8;
constexpr int64_t kMostProjectedBytes = int64_t{1} << 30;
// What a multiprocessor reads of its weights in about the time of a launch.
constexpr int64_t kBytesOfLaunch = 256 * 1024;
constexpr int64_t kWorkspaceAlign = 256;

enum RecurrentInput : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kPeepholes };
// Parts of the workspace, which the function has as parameters of these names.
enum Memory : size_t { kStates, kCells, kUpdates, kResets, kProjected, kMemories };
constexpr std::string_view kMemoryNames[] = {"states", "cells", "updates", "resets", "sums"};

int64_t gate_count(RecurrentKind kind) {
  return kind == RecurrentKind::kRnn ? 1 : kind == RecurrentKind::kGru ? 3 : 4;
}

// The text of a Recurrent of a request.
class RecurrentText {
 public:
  RecurrentText(const Recurrent& op, const Request& request, Extents& extents, int64_t rows,
                bool is_projected)
      : op_(op),
        request_(request),
        extents_(extents),
        rows_(rows),
        is_projected_(is_projected),
        dtype_(request.inputs[kX].type.dtype),
        type_(register_type(accumulator(dtype_))) {}

  std::vector<size_t> inputs() const {
    std::vector<size_t> all;
    for (size_t i = 0; i < request_.inputs.size(); ++i)
      if (has(i) && !(is_projected_ && i <= kW)) all.push_back(i);
    return all;
  }
  std::vector<size_t> memories() const {
    std::vector<size_t> all = {kStates};
    if (op_.kind == RecurrentKind::kLstm) all.push_back(kCells);
    if (resets_state()) all.insert(all.end(), {kUpdates, kResets});
    if (is_projected_) all.push_back(kProjected);
    return all;
  }
  // Whether a step is two launches where a block does not have all units.
  bool resets_state() const { return op_.kind == RecurrentKind::kGru && !op_.linear_before_reset; }

  FunctionText text() {
    const std::string definition = layer();
    return {"recurrent",
            {"program.h", "lanes.h", "rows.h", "recurrent.h"},
            fmt::format("{}KERNEL($name, {})({}{}, i64 begin, i64 end, i64 parts, i64 half) {{\n"
                        "const Layer layer = {{{}{}}};\n"
                        "recurrent::run(layer, begin, end, parts, half);\n}}\n",
                        definition, kMostCellThreads, operands(", "), extents_.parameters(), names_,
                        extents_.names())};
  }

 private:
  bool has(size_t input) const { return is_present(request_, input); }
  std::string number(double value) const {
    return type_ == RegisterType::kF64
               ? literal(type_, std::bit_cast<uint64_t>(value))
               : literal(type_, std::bit_cast<uint32_t>(static_cast<float>(value)));
  }

  // The operands with their types, as parameters or as members.
  std::string operands(std::string_view between) {
    std::vector<std::string> all, names;
    for (const size_t i : inputs()) {
      names.push_back(fmt::format("x{}", i));
      all.push_back(
          fmt::format("In<{}> {}", type_text(request_.inputs[i].type.dtype), names.back()));
    }
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      names.push_back(fmt::format("y{}", i));
      all.push_back(fmt::format("Out<{}> {}", type_text(dtype_), names.back()));
    }
    for (const size_t i : memories()) {
      names.emplace_back(kMemoryNames[i]);
      all.push_back(fmt::format("Out<{}> {}", type_text(type_), names.back()));
    }
    names_ = fmt::format("{}", fmt::join(names, ", "));
    return fmt::format("{}", fmt::join(all, between));
  }
  std::string size(std::string_view name, size_t input, int axis) {
    return size_text(extents_, name, input, axis);
  }
  static std::string parameters(CoordinateNames at) {
    std::string text;
    for (const std::string_view name : at)
      text += fmt::format("{}[[maybe_unused]] Index {}", text.empty() ? "" : ", ", name);
    return text;
  }
  // An element of an input; 0 if the input is absent.
  std::string element(std::string_view name, size_t input, CoordinateNames at,
                      std::string_view given = {}) {
    const std::string from = fmt::format(
        "x{}[{}]", input, has(input) ? place_text(request_, extents_, false, input, at) : "");
    return function_text(
        "Acc", name, given.empty() ? parameters(at) : std::string(given),
        has(input) ? fmt::format("return {};", loaded(request_.inputs[input].type.dtype, from))
                   : "return Acc(0);");
  }
  std::string put(std::string_view name, size_t output, CoordinateNames at) {
    const bool is_there = output < request_.outputs.size();
    return function_text("void", name, parameters(at) + ", [[maybe_unused]] Acc value",
                         is_there ? fmt::format("y{}[{}] = {};", output,
                                                place_text(request_, extents_, true, output, at),
                                                stored(dtype_, "value"))
                                  : "");
  }
  std::string length() {
    if (!has(kLengths))
      return function_text("Index", "length", "[[maybe_unused]] Index n", "return steps();");
    return function_text(
        "Index", "length", "Index n",
        fmt::format("return Index(recurrent::limited(i64(x{}[{}]), i64(0), "
                    "i64(steps())));",
                    size_t{kLengths}, place_text(request_, extents_, false, kLengths, {"n"})));
  }
  std::string activation(std::string_view name, Activation kind, size_t which, bool is_clipped) {
    const std::string a = number(op_.alphas.empty() ? 0 : op_.alphas[which]);
    const std::string b = number(op_.betas.empty() ? 0 : op_.betas[which]);
    const std::string clip = is_clipped && op_.clip != 0
                                 ? fmt::format("x = recurrent::limited(x, {}, {}); ",
                                               number(-op_.clip), number(op_.clip))
                                 : "";
    return function_text(
        "Acc", name, "Acc x",
        clip + fmt::format("return {};", fmt::format(fmt::runtime(formula(kind)), fmt::arg("a", a),
                                                     fmt::arg("b", b))));
  }
  // Of x, a (alpha) and b (beta), in the form of cpu.recurrent.reference.
  static std::string_view formula(Activation kind) {
    switch (kind) {
      case Activation::kSigmoid:
        return "op::sigmoid(x)";
      case Activation::kTanh:
        return "op::tanh(x)";
      case Activation::kRelu:
        return "x < Acc(0) ? Acc(0) : x";
      case Activation::kAffine:
        return "{a} * x + {b}";
      case Activation::kLeakyRelu:
        return "x < Acc(0) ? {a} * x : x";
      case Activation::kThresholdedRelu:
        return "x <= {a} ? Acc(0) : x";
      case Activation::kScaledTanh:
        return "{a} * op::tanh({b} * x)";
      case Activation::kHardSigmoid:
        return "recurrent::limited({a} * x + {b}, Acc(0), Acc(1))";
      case Activation::kElu:
        return "x < Acc(0) ? {a} * op::expm1(x) : x";
      case Activation::kSoftsign:
        return "x / (Acc(1) + op::abs(x))";
      case Activation::kSoftplus:
        break;
    }
    return "(x > Acc(0) ? x : Acc(0)) + op::log1p(op::exp(-op::abs(x)))";
  }
  std::string cell() const {
    switch (op_.kind) {
      case RecurrentKind::kRnn:
        return "recurrent::Rnn";
      case RecurrentKind::kGru:
        return "recurrent::Gru";
      case RecurrentKind::kLstm:
        break;
    }
    return fmt::format("recurrent::Lstm<{}>", op_.input_forget);
  }
  std::string reverse() const {
    const bool always = op_.direction == Direction::kReverse;
    return function_text("bool", "reverse", "[[maybe_unused]] Index d",
                         op_.direction == Direction::kBidirectional ? "return d == 1;"
                         : always                                   ? "return true;"
                                                                    : "return false;");
  }

  std::string layer() {
    const int64_t gates = gate_count(op_.kind);
    const std::string rows = fmt::format("(units() * {} + row)", gates);
    std::string functions =
        size("steps", kX, 0) + size("batch", kX, 1) + size("input", kX, 2) +
        size("directions", kR, 0) + size("units", kR, 2) + reverse() + length() +
        element("r", kR, {"d", "row", "k"}) + element("input_bias", kB, {"d", "row"}) +
        element("bias", kB, {"d", rows}, "[[maybe_unused]] Index d, [[maybe_unused]] Index row") +
        element("first_h", kH0, {"d", "n", "i"}) + element("first_c", kC0, {"d", "n", "i"}) +
        element("peephole", kPeepholes, {"d", "row"}) + put("put_y", 0, {"t", "d", "n", "i"}) +
        put("put_h", 1, {"d", "n", "i"}) + put("put_c", 2, {"d", "n", "i"}) +
        activation("gate", op_.gate, 0, true) + activation("cell", op_.cell, 1, true) +
        activation("output", op_.output, 2, false);
    if (is_projected_) {
      functions += function_text(
          "Acc", "projected", "Index d, Index t, Index n, Index row",
          fmt::format("return sums[((i64(d) * steps() + t) * batch() + n) * (units() * i64({})) + "
                      "row];",
                      gates));
    } else {
      functions += element("x", kX, {"t", "n", "k"}) + element("w", kW, {"d", "row", "k"});
    }
    std::string fields = operands("; ") + ";\n";
    for (size_t i = 0; i < extents_.sources().size(); ++i) fields += fmt::format("  i64 v{};\n", i);
    return fmt::format(
        "struct Layer {{\n  using Acc = {};\n  using Index = {};\n  using Cell = {};\n"
        "  enum : int {{ kRows = {} }};\n  enum : bool {{ kFromState = {}, kProjected = {} }};\n"
        "  {}{}}};\n",
        type_text(type_), index_type(request_), cell(), rows_, resets_state(), is_projected_,
        fields, functions);
  }

  const Recurrent& op_;
  const Request& request_;
  Extents& extents_;
  int64_t rows_;
  bool is_projected_;
  DataType dtype_;
  RegisterType type_;
  std::string names_;
};

// The product of x and the weights of all gates: [directions, steps, batch, rows].
class InputProduct {
 public:
  // Nothing if no kernel takes it. A tactic of the request has the number of the kernel in front of
  // the kernel's own.
  static std::optional<InputProduct> make(const Request& request) {
    const Operand &x = request.inputs[kX], &w = request.inputs[kW];
    SizeTable sizes(request.sizes);
    InputProduct made;
    made.dtype_ = accumulator(x.type.dtype);
    const Shape shape = {w.type.shape[0], x.type.shape[0], x.type.shape[1], w.type.shape[1]};
    const Operand inputs[] = {x, weights()(w, shape, sizes)};
    const Operand output = {.type = {made.dtype_, shape},
                            .strides = row_major_strides(shape, sizes)};
    const Op op = MatMul{.transpose_b = true};
    const Request product = {.op = op,
                             .epilogues = {},
                             .op_input_count = 2,
                             .inputs = inputs,
                             .outputs = {&output, 1},
                             .sizes = sizes,
                             .device = request.device,
                             .tactic = request.tactic.subspan(request.tactic.empty() ? 0 : 1)};
    const auto entries = matmul_entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      made.number_ = static_cast<std::byte>(i);
      if (!request.tactic.empty() && request.tactic[0] != made.number_) continue;
      KernelResult kernel = entries[i].make(product);
      if (!kernel) continue;
      made.kernel_ = *std::move(kernel);
      return made;
    }
    return std::nullopt;
  }

  struct Prepared {
    std::unique_ptr<PreparedKernel> kernel;
    TensorView output;  // without its data
  };
  std::vector<std::byte> tactic() const {
    std::vector<std::byte> tactic = kernel_->tactic();
    tactic.insert(tactic.begin(), number_);
    return tactic;
  }
  Prepared prepare(std::span<const TensorView> inputs, int threads) const {
    const TensorView &x = inputs[kX], &w = inputs[kW];
    Prepared prepared;
    prepared.output = row_major_view(dtype_, {w.dims[0], x.dims[0], x.dims[1], w.dims[1]}, nullptr);
    const TensorView both[] = {x, weights()(w, {})};
    prepared.kernel = kernel_->prepare(both, {&prepared.output, 1}, threads);
    return prepared;
  }
  // The sums are at `to`. REQUIRES: of the product's kernel no workspace
  void launch(const Prepared& prepared, const LaunchArgs& args, std::byte* to) const {
    const TensorView both[] = {args.inputs[kX], weights()(args.inputs[kW], {})};
    TensorView output = prepared.output;
    output.data = to;
    kernel_->launch({both, {&output, 1}, prepared.kernel.get(), nullptr, args.stream, args.team});
  }

 private:
  static AxisMapping weights() { return {.axes = {{.of = {0}}, {}, {.of = {1}}, {.of = {2}}}}; }

  std::unique_ptr<Kernel> kernel_;
  std::byte number_ = {};
  DataType dtype_ = DataType::kF32;
};

struct PreparedSteps final : PreparedKernel {
  std::vector<int64_t> values;
  Geometry geometry{.grid = {0, 1, 1}};  // no blocks
  int64_t steps = 0, parts = 1;
  size_t memory[kMemories] = {};  // where parts of the workspace begin
  std::optional<InputProduct::Prepared> product;
};

class StepsKernel final : public Kernel {
 public:
  struct Parts {
    std::shared_ptr<const Function> function;
    std::vector<size_t> inputs, memories;
    std::vector<Extents::Source> sources;
    std::optional<InputProduct> product;
    int64_t gates = 1, rows = 1;
    size_t number_bytes = 4;  // of a sum
    bool resets_state = false;
    const DeviceSpec* spec = nullptr;
  };
  explicit StepsKernel(Parts parts) : parts_(std::move(parts)) {}

  std::vector<std::byte> tactic() const override {
    return parts_.product ? parts_.product->tactic() : std::vector<std::byte>();
  }
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto prepared = std::make_unique<PreparedSteps>();
    const TensorView& x = inputs[kX];
    const Dims& state = outputs[1].dims;
    const int64_t units = state[2], numbers = count(state);
    prepared->steps = x.dims[0];
    prepared->values = values_of(parts_.sources, inputs, outputs);
    if (numbers == 0) return prepared;
    const int64_t sums = numbers * x.dims[0] * parts_.gates;
    const int64_t sizes[kMemories] = {numbers * 2, numbers, numbers, numbers, sums};
    for (const size_t memory : parts_.memories) {
      prepared->memory[memory] = prepared->workspace_bytes;
      prepared->workspace_bytes += static_cast<size_t>(
          align_up(sizes[memory] * static_cast<int64_t>(parts_.number_bytes), kWorkspaceAlign));
    }
    if (parts_.product) prepared->product = parts_.product->prepare(inputs, threads);
    const int64_t depth = units + (parts_.product ? 0 : x.dims[2]);
    share(*prepared, state[0] * ceil_div(state[1], parts_.rows), units,
          parts_.gates * units * depth * static_cast<int64_t>(size_of(x.dtype)));
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& prepared = static_cast<const PreparedSteps&>(*args.prepared);
    if (prepared.geometry.grid[0] == 0) return;
    if (prepared.product && prepared.steps > 0)
      parts_.product->launch(*prepared.product, args, args.workspace + prepared.memory[kProjected]);
    Arguments all;
    for (const size_t input : parts_.inputs) all.add(args.inputs[input]);
    for (const TensorView& output : args.outputs) all.add(output);
    for (const size_t memory : parts_.memories) all.add(args.workspace + prepared.memory[memory]);
    for (const int64_t value : prepared.values) all.add(value);
    const auto launch_steps = [&](int64_t begin, int64_t end, int64_t half) {
      Arguments own = all;
      for (const int64_t value : {begin, end, prepared.parts, half}) own.add(value);
      cuda::launch(args.stream, *parts_.function, prepared.geometry, own);
    };
    if (prepared.parts == 1 || prepared.steps == 0) return launch_steps(0, prepared.steps, 0);
    for (int64_t step = 0; step < prepared.steps; ++step) {
      launch_steps(step, step + 1, parts_.resets_state ? 1 : 0);
      if (parts_.resets_state) launch_steps(step, step + 1, 2);
    }
  }

 private:
  // Blocks have all units if they are many, or if a step of theirs takes no longer than a launch.
  // bytes: that a block with all units reads in a step.
  void share(PreparedSteps& prepared, int64_t groups, int64_t units, int64_t bytes) const {
    const bool is_long = prepared.steps > 1;
    if (groups < parts_.spec->multiprocessors && !(is_long && bytes <= kBytesOfLaunch)) {
      const int64_t resident = int64_t{parts_.spec->multiprocessors} *
                               (parts_.spec->threads_per_multiprocessor / kCellThreads);
      prepared.parts =
          std::clamp<int64_t>(resident / groups, 1, ceil_div(units, kCellThreads / 32));
    }
    const int64_t most = prepared.parts == 1 ? kMostCellThreads : kCellThreads;
    const int64_t threads = std::min(ceil_div(units, prepared.parts) * 32, most);
    prepared.geometry = blocks_of(groups * prepared.parts, static_cast<int>(threads));
  }

  Parts parts_;
};

bool is_worth_product(const Request& request, size_t number_bytes, int64_t gates) {
  const Shape &x = request.inputs[kX].type.shape, &state = request.outputs[1].type.shape;
  const auto usual = [&](Size size) { return std::max<int64_t>(request.sizes.range(size).opt, 1); };
  double bytes = static_cast<double>(number_bytes) * static_cast<double>(gates * usual(x[0]));
  for (const Size size : state) bytes *= static_cast<double>(usual(size));
  return usual(x[0]) >= kWorthProductSteps && usual(x[2]) >= kWorthProductInput &&
         bytes <= static_cast<double>(kMostProjectedBytes);
}

KernelResult make_recurrent(const Recurrent& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue of an op with several outputs");
  const DataType sum = accumulator(request.inputs[kX].type.dtype);
  StepsKernel::Parts parts;
  parts.gates = gate_count(op.kind);
  parts.number_bytes = size_of(sum);
  parts.spec = &spec_of(request.device);
  const int64_t batch = request.sizes.range(request.inputs[kX].type.shape[1]).opt;
  parts.rows = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(batch, 1, kMostSequences))));
  if (is_worth_product(request, parts.number_bytes, parts.gates))
    parts.product = InputProduct::make(request);
  if (!request.tactic.empty() && !parts.product)
    return refuse("a tactic that is none of this kernel's");
  Extents extents(request);
  RecurrentText text(op, request, extents, parts.rows, parts.product.has_value());
  parts.function = code_of(request.device).add(text.text());
  parts.inputs = text.inputs();
  parts.memories = text.memories();
  parts.sources = extents.sources();
  parts.resets_state = text.resets_state();
  return std::make_unique<StepsKernel>(std::move(parts));
}

constexpr KernelEntry kRecurrentEntries[] = {
    entry<Recurrent, make_recurrent>("cuda.recurrent.steps"),
};

}  // namespace

std::span<const KernelEntry> recurrent_entries() { return kRecurrentEntries; }

}  // namespace anneal::cuda
