#include "anneal/tests/optimizer/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "anneal/core/new_tensor.h"
#include "anneal/tests/optimizer/random_functions.h"

namespace anneal::testing {
namespace {

// Out of the ordinary: of these, those whose bits are set in `kinds`.
constexpr float kStrange[] = {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              0.f,
                              -0.f,
                              1e-40f,
                              3e38f,
                              -3e38f};
constexpr uint32_t kNanAndInfinities = 0b111;

// strange: of which kinds every fifth element is, on average.
Tensor random_tensor(DataType dtype, const Dims& dims, std::mt19937& random, double scale,
                     uint32_t strange = 0) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  NewTensor fresh = allocate_tensor(dtype, dims);
  const RegisterType f32 = RegisterType::kF32;
  for (int64_t i = 0; i < count(dims); ++i) {
    float number = normal(random);
    const uint32_t kind = strange == 0 ? 8 : random() % 40;
    if (kind < 8 && (strange >> kind) % 2 == 1) number = kStrange[kind];
    Scalar value = Scalar::of(number);
    const Instruction round{Opcode::kRound, f32, {0, 0, 0}, static_cast<uint64_t>(dtype)};
    if (dtype != DataType::kF32) value = evaluate(round, std::span(&value, 1), std::span(&f32, 1));
    store_scalar(dtype, value, fresh.data.data() + static_cast<size_t>(i) * size_of(dtype));
  }
  return fresh.tensor;
}

constexpr int64_t kOpen = -1;

class Maker {
 public:
  Maker(uint32_t seed, Flavour flavour) : random_(seed), flavour_(flavour) {
    dtype_ = pick(10) == 0 ? DataType::kF16 : DataType::kF32;
    graph_.name = fmt::format("random{}", seed);
  }

  Graph make() {
    const int inputs = 1 + static_cast<int>(pick(2));
    for (int i = 0; i < inputs; ++i) {
      Shape shape;
      const int rank = 2 + static_cast<int>(pick(3));
      for (int axis = 0; axis < rank; ++axis)
        shape.push_back(static_cast<int64_t>(axis == 0 ? 1 + pick(2) : 2 + pick(5)));
      if (flavour_ == Flavour::kBatch) shape[0] = 4;
      if (flavour_ == Flavour::kOpenSizes) open_sizes_of(shape);
      values_.push_back(graph_.add_input(fmt::format("x{}", i), {dtype_, shape}));
    }
    const int steps = 4 + static_cast<int>(pick(17));
    for (int i = 0; i < steps; ++i) step();
    const int outputs = flavour_ == Flavour::kBatch ? 1 : 1 + static_cast<int>(pick(3));
    for (int i = 0; i < outputs; ++i)
      graph_.mark_output(i == 0 ? values_.back() : any(), fmt::format("y{}", i));
    graph_.erase_unused();
    return std::move(graph_);
  }

 private:
  // N, or W, or both.
  void open_sizes_of(Shape& shape) {
    const uint32_t which = pick(3);
    SizeTable& sizes = graph_.sizes();
    const auto open = [&](int axis, std::string_view name, Bounds bounds) {
      const bool is_new = std::ranges::none_of(
          sizes.symbols(), [&](const SizeSymbol& symbol) { return symbol.name == name; });
      shape[axis] = sizes.symbol(name);
      if (is_new) sizes.set_bounds(shape[axis], bounds);
    };
    if (which != 1) open(0, "N", {1, 2, 6});
    if (which != 0) open(shape.rank() - 1, "W", {2, 4, 9});
  }
  bool is_strange() const {
    return flavour_ == Flavour::kNonFinite || flavour_ == Flavour::kAnyValues;
  }
  uint32_t strange_kinds() {
    return flavour_ == Flavour::kNonFinite ? kNanAndInfinities : pick(256);
  }
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool often() { return pick(3) != 0; }
  // Later values more often, so that graphs are deep as well as wide.
  ValueId any() {
    const size_t from = often() ? values_.size() - std::min<size_t>(values_.size(), 4) : 0;
    return values_[from + pick(static_cast<uint32_t>(values_.size() - from))];
  }
  ValueId any_of_rank(int least) {
    for (int tries = 0; tries < 12; ++tries)
      if (const ValueId value = any(); shape(value).rank() >= least) return value;
    return ValueId::kNone;
  }
  const Shape& sizes(ValueId value) const { return graph_.value(value).type().shape; }
  // With kOpen for sizes that are open.
  Dims shape(ValueId value) const {
    Dims dims;
    for (const Size size : sizes(value)) dims.push_back(size.known() ? size.value() : kOpen);
    return dims;
  }
  bool is_open(ValueId value, int axis) const { return !sizes(value)[axis].known(); }
  int64_t least(ValueId value, int axis) const {
    return graph_.sizes().range(sizes(value)[axis]).min;
  }
  int64_t most_elements(ValueId value) const {
    int64_t total = 1;
    for (const Size size : sizes(value)) total *= graph_.sizes().range(size).max;
    return total;
  }
  ValueId constant(const Dims& dims, double scale = 1) {
    const uint32_t strange = is_strange() && pick(8) == 0 ? strange_kinds() : 0;
    return graph_.add_constant("c", random_tensor(dtype_, dims, random_, scale, strange));
  }
  // Of a window: what an infinite one makes of padding is not defined, but of layers of padding.
  ValueId window_weights(const Dims& dims) {
    if (flavour_ == Flavour::kAnyValues) return constant(dims, 0.3);
    return graph_.add_constant("c", random_tensor(dtype_, dims, random_, 0.3));
  }
  ValueId integers(const std::vector<int64_t>& values) {
    return graph_.add_constant(
        "n", Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(values.size())}, values));
  }
  ValueId add(Op op, std::vector<ValueId> inputs) {
    const LayerId id = graph_.add({.name = "l", .op = std::move(op), .inputs = std::move(inputs)});
    return graph_.layer(id).outputs[0];
  }
  template <class Formula>
  ValueId pointwise(std::vector<ValueId> inputs, Formula formula) {
    ProgramBuilder builder;
    std::vector<Reg> regs;
    for (size_t i = 0; i < inputs.size(); ++i)
      regs.push_back(builder.input(static_cast<int>(i), dtype_));
    const Reg result = formula(builder, regs);
    return add(Pointwise{builder.finish(result, dtype_)}, std::move(inputs));
  }
  ValueId unary(ValueId x) {
    const bool wild = is_strange() && pick(2) == 0;
    const uint32_t kind = pick(!wild                             ? kTameFunctions
                               : flavour_ == Flavour::kNonFinite ? kAskingFunctions
                                                                 : kWildFunctions);
    return pointwise({x}, [&](ProgramBuilder& builder, const std::vector<Reg>& in) {
      return wild ? wild_function(builder, kind, in[0]) : tame_function(builder, kind, in[0]);
    });
  }
  ValueId binary(Opcode opcode, ValueId a, ValueId b) {
    return pointwise({a, b}, [&](ProgramBuilder& builder, const std::vector<Reg>& in) {
      return builder.apply(opcode, in[0], in[1]);
    });
  }
  // A constant that broadcasts along some axes of the value.
  ValueId beside(ValueId value, double scale = 0.5) {
    Dims dims = shape(value);
    for (int axis = 0; axis < dims.rank(); ++axis)
      if (often() || dims[axis] == kOpen) dims[axis] = 1;
    if (pick(4) == 0) dims = {};
    return constant(dims, scale);
  }
  ValueId per_channel(ValueId value, double scale) {
    Dims dims = Dims::filled(shape(value).rank() - 1, 1);
    if (!is_open(value, 1)) dims[0] = shape(value)[1];
    return constant(dims, scale);
  }
  // Keeps what grew in bounds.
  void keep(ValueId value) { values_.push_back(value); }

  ValueId conv(ValueId x, int64_t channels, int64_t kernel, int64_t stride) {
    if (is_open(x, 1)) return unary(x);
    const int spatial = shape(x).rank() - 2;
    Dims dims{channels, shape(x)[1]};
    for (int i = 0; i < spatial; ++i) dims.push_back(kernel);
    const std::vector<int64_t> pads(static_cast<size_t>(spatial), kernel / 2);
    const std::vector<int64_t> ones(static_cast<size_t>(spatial), 1);
    return add(Conv{.strides = std::vector<int64_t>(static_cast<size_t>(spatial), stride),
                    .pads_begin = pads,
                    .pads_end = pads,
                    .dilations = ones},
               {x, window_weights(dims)});
  }
  ValueId size_of_axis(ValueId x, int64_t axis) { return add(ShapeOf{axis, axis + 1}, {x}); }
  ValueId half_of(ValueId x, int64_t axis) {
    ProgramBuilder builder;
    const Reg size = builder.input(0, DataType::kI64);
    const Reg two = builder.constant(RegisterType::kI64, int64_t{2});
    return add(Pointwise{builder.finish(builder.apply(Opcode::kDiv, size, two), DataType::kI64)},
               {size_of_axis(x, axis)});
  }
  // A list of products of the value's sizes, one for each group of its axes: numbers if they are
  // known; else, where one may be left, with a -1, as expressions, or computed as exporters do.
  ValueId list_of_sizes(ValueId x, const std::vector<std::vector<int>>& groups,
                        bool may_leave_one = false) {
    std::vector<Size> products;
    for (const std::vector<int>& group : groups) {
      Size product = 1;
      for (const int axis : group) product = graph_.sizes().mul(product, sizes(x)[axis]);
      products.push_back(product);
    }
    const auto open = std::ranges::count_if(products, [](Size size) { return !size.known(); });
    if (open == 0 || (open == 1 && may_leave_one && often())) {
      std::vector<int64_t> numbers;
      for (const Size size : products) numbers.push_back(size.known() ? size.value() : -1);
      return integers(numbers);
    }
    if (pick(3) == 0) return add(SizeTensor{.elements = products}, {});
    std::vector<ValueId> parts;
    for (const std::vector<int>& group : groups) {
      ValueId part = group.empty() ? integers({1}) : size_of_axis(x, group[0]);
      for (size_t i = 1; i < group.size(); ++i)
        part = add(Pointwise{parse_program("(i64,i64)->(i64) mul($0,$1)")},
                   {part, size_of_axis(x, group[i])});
      parts.push_back(part);
    }
    return add(Concat{.axis = 0}, std::move(parts));
  }
  // What is made of sizes that only a run knows.
  void sized() {
    const ValueId x = any(), other = any();
    const auto axis = pick(static_cast<uint32_t>(shape(x).rank()));
    std::vector<std::vector<int>> axes(static_cast<size_t>(shape(x).rank()));
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = {static_cast<int>(i)};
    switch (pick(4)) {
      case 0: {
        const ValueId mean = add(Reduce{.kind = ReduceKind::kMean}, {x, integers({axis})});
        return keep(add(Expand{}, {mean, list_of_sizes(x, axes)}));
      }
      case 1: {  // as far as another value goes, which may be further
        const auto of = pick(static_cast<uint32_t>(shape(other).rank()));
        return keep(add(Slice{}, {x, integers({0}), size_of_axis(other, of), integers({axis}),
                                  integers({1 + pick(2)})}));
      }
      case 2: {  // divided by a size
        const ValueId size = size_of_axis(x, axis);
        ProgramBuilder builder;
        const Reg dividend = builder.input(0, dtype_);
        const Reg divisor = builder.cast(builder.input(1, DataType::kI64), RegisterType::kF32);
        const Program program = builder.finish(
            builder.round(builder.apply(Opcode::kDiv, dividend, divisor), dtype_), dtype_);
        return keep(add(Pointwise{program}, {x, size}));
      }
      default:
        if (most_elements(x) > 2000) return;
        axes.insert(axes.begin(), std::vector<int>{});
        axes[0] = {static_cast<int>(axis)};
        return keep(add(Expand{}, {x, list_of_sizes(x, axes)}));
    }
  }
  ValueId last_axis_mean(ValueId x) {
    return add(Reduce{.kind = ReduceKind::kMean, .keepdims = true},
               {x, integers({shape(x).rank() - 1})});
  }
  static bool equal_but_one(const Shape& a, const Shape& b, int axis) {
    for (int i = 0; i < a.rank(); ++i)
      if (i != axis && !(a[i] == b[i])) return false;
    return a.rank() == b.rank();
  }

  // Which of two, as a third says by a layer of its own.
  void choice() {
    const ValueId x = any(), other = any();
    const ValueId y = sizes(x) == sizes(other) ? other : beside(x);
    const Opcode tests[] = {Opcode::kIsNan, Opcode::kIsInf};
    const Opcode test = tests[pick(2)];
    ProgramBuilder asking, choosing;
    const Reg asked = asking.input(0, dtype_);
    const ValueId mask =
        add(Pointwise{asking.finish(asking.apply(test, asked), DataType::kBool)}, {x});
    const Reg condition = choosing.input(0, DataType::kBool);
    const Reg yes = choosing.input(1, dtype_), no = choosing.input(2, dtype_);
    keep(add(Pointwise{choosing.finish(choosing.select(condition, yes, no), dtype_)},
             often() ? std::vector{mask, y, x} : std::vector{mask, x, y}));
  }

  void step() {
    if (is_strange() && pick(10) == 0) return choice();
    if (flavour_ == Flavour::kOpenSizes && pick(6) == 0) return sized();
    switch (pick(20)) {
      case 0:
      case 1:
        return keep(unary(any()));
      case 2: {
        const ValueId x = any();
        const Opcode ops[] = {Opcode::kAdd, Opcode::kSub, Opcode::kMul, Opcode::kMax};
        return keep(binary(ops[pick(4)], x, beside(x)));
      }
      case 3: {
        const ValueId a = any(), b = any();
        if (sizes(a) == sizes(b)) keep(binary(Opcode::kAdd, a, b));
        return;
      }
      case 4: {
        const ValueId x = any_of_rank(3);
        if (x == ValueId::kNone) return;
        ValueId y = conv(x, 2 + pick(4), 1 + 2 * pick(2), 1 + pick(2));
        if (often()) y = binary(Opcode::kMul, y, per_channel(y, 0.5));
        if (often()) y = binary(Opcode::kAdd, y, per_channel(y, 0.5));
        return keep(often() ? unary(y) : y);
      }
      case 5:
        return siblings();
      case 6: {
        const ValueId x = any_of_rank(2);
        const Dims dims = shape(x);
        if (dims[dims.rank() - 1] == kOpen) return;
        ValueId y = add(MatMul{}, {x, constant({dims[dims.rank() - 1], 2 + pick(5)}, 0.3)});
        if (often()) y = binary(Opcode::kAdd, y, constant({shape(y)[dims.rank() - 1]}, 0.5));
        return keep(y);
      }
      case 7: {
        const ValueId x = any_of_rank(3);
        if (x == ValueId::kNone) return;
        const auto spatial = static_cast<size_t>(shape(x).rank() - 2);
        for (int axis = 2; axis < shape(x).rank(); ++axis)
          if (least(x, axis) < 2) return;
        const std::vector<int64_t> twos(spatial, 2), none(spatial, 0), ones(spatial, 1);
        return keep(add(Pool{.kind = often() ? PoolKind::kMax : PoolKind::kAverage,
                             .kernel = twos,
                             .strides = often() ? twos : ones,
                             .pads_begin = none,
                             .pads_end = none,
                             .dilations = ones},
                        {x}));
      }
      case 8: {
        const ValueId x = any();
        return keep(add(Softmax{.axis = shape(x).rank() - 1, .log = pick(4) == 0}, {x}));
      }
      case 9:
        return normalize();
      case 10: {
        const ValueId x = any();
        const ReduceKind kinds[] = {ReduceKind::kSum, ReduceKind::kMean, ReduceKind::kMax};
        const ReduceKind kind = kinds[pick(3)];
        const auto axis = pick(static_cast<uint32_t>(shape(x).rank()));
        // Which zero the sum of one zero is, is not defined.
        if (flavour_ == Flavour::kAnyValues && shape(x)[static_cast<int>(axis)] == 1) return;
        const ValueId axes = integers({axis});
        ValueId y = add(Reduce{.kind = kind, .keepdims = true}, {often() ? x : unary(x), axes});
        if (often()) y = unary(y);
        return keep(often() && !graph_.is_output(x) ? binary(Opcode::kSub, x, y) : y);
      }
      case 11:
      case 12:
        return transposed();
      case 13: {
        const ValueId x = any();
        std::vector<std::vector<int>> to(static_cast<size_t>(shape(x).rank()));
        for (size_t axis = 0; axis < to.size(); ++axis) to[axis] = {static_cast<int>(axis)};
        if (to.size() > 2 && often()) {
          to[1] = {0, 1};
          to.erase(to.begin());
        } else if (to.size() < 5) {
          to.insert(to.begin() + pick(static_cast<uint32_t>(to.size())), std::vector<int>{});
        }
        return keep(add(Reshape{}, {x, list_of_sizes(x, to, true)}));
      }
      case 14: {
        const ValueId a = any(), b = any();
        const int axis = static_cast<int>(pick(static_cast<uint32_t>(shape(a).rank())));
        if (!equal_but_one(sizes(a), sizes(b), axis) || shape(a)[axis] + shape(b)[axis] > 24 ||
            most_elements(a) > 4000)
          return;
        return keep(add(Concat{.axis = axis}, {a, b}));
      }
      case 15:
        return parts();
      case 16: {
        const ValueId x = any();
        if (shape(x).rank() < 3) return;
        std::vector<int64_t> pads(static_cast<size_t>(2 * shape(x).rank()), 0);
        pads[pads.size() / 2 - 1] = pick(2);
        pads.back() = 1;
        const ValueId padded = add(Pad{}, {x, integers(pads)});
        return keep(often() ? conv(padded, 3, 1 + 2 * pick(2), 1) : padded);
      }
      case 17:
        return attention();
      case 18: {
        const ValueId x = any_of_rank(4);
        if (x == ValueId::kNone || shape(x).rank() != 4 || is_open(x, 1) || most_elements(x) > 4000)
          return;
        const int64_t kernel = 2 + pick(2);
        return keep(add(ConvTranspose{.strides = {2, 2},
                                      .pads_begin = {0, 0},
                                      .pads_end = {0, 0},
                                      .dilations = {1, 1},
                                      .output_padding = {0, 0}},
                        {x, window_weights({shape(x)[1], 3, kernel, kernel})}));
      }
      default: {  // the same once more
        const ValueId x = any();
        ProgramBuilder builder;
        const Reg in = builder.input(0, dtype_);
        const Program program = builder.finish(builder.apply(Opcode::kTanh, in), dtype_);
        keep(add(Pointwise{program}, {x}));
        return keep(add(Pointwise{program}, {x}));
      }
    }
  }

  void siblings() {
    const ValueId x = any_of_rank(3);
    if (x == ValueId::kNone) return;
    std::vector<ValueId> parts;
    const bool is_conv = often();
    for (uint32_t i = 0, n = 2 + pick(2); i < n; ++i) {
      ValueId y;
      if (is_conv) {
        y = conv(x, 1 + pick(4), i == 2 ? 3 : 1, 1);
        if (often()) y = binary(Opcode::kAdd, y, per_channel(y, 0.5));
      } else {
        if (is_open(x, shape(x).rank() - 1)) return;
        y = add(MatMul{}, {x, constant({shape(x)[shape(x).rank() - 1], 2 + pick(4)}, 0.3)});
      }
      if (often()) y = unary(y);
      keep(y);
      parts.push_back(y);
    }
    if (often()) keep(add(Concat{.axis = is_conv ? 1 : shape(x).rank() - 1}, std::move(parts)));
  }

  // Written out, as exporters do.
  void normalize() {
    const ValueId x = any();
    if (least(x, shape(x).rank() - 1) < 2) return;
    const bool subtract = often();
    const ValueId centred = subtract ? binary(Opcode::kSub, x, last_axis_mean(x)) : x;
    const ValueId squares = binary(Opcode::kMul, centred, centred);
    const ValueId deviation =
        pointwise({last_axis_mean(squares)}, [](ProgramBuilder& b, const std::vector<Reg>& in) {
          return b.apply(Opcode::kSqrt, b.apply(Opcode::kAdd, in[0], b.constant(0.1f)));
        });
    ValueId y = binary(Opcode::kDiv, centred, deviation);
    const int axis = shape(x).rank() - 1;
    const Dims last = {is_open(x, axis) ? 1 : shape(x)[axis]};
    if (often()) y = binary(Opcode::kMul, y, constant(last));
    if (often()) y = binary(Opcode::kAdd, y, constant(last));
    keep(y);
  }

  void transposed() {
    const ValueId x = any();
    std::vector<int64_t> permutation(static_cast<size_t>(shape(x).rank()));
    std::iota(permutation.begin(), permutation.end(), int64_t{0});
    std::shuffle(permutation.begin(), permutation.end(), random_);
    const ValueId y = add(Transpose{permutation}, {x});
    if (often()) return keep(y);
    std::vector<int64_t> back(permutation.size());
    for (size_t i = 0; i < back.size(); ++i)
      back[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
    keep(add(Transpose{back}, {unary(y)}));
  }

  void parts() {
    const ValueId x = any();
    const auto axis = pick(static_cast<uint32_t>(shape(x).rank()));
    const int64_t size = least(x, static_cast<int>(axis));
    if (size < 2) return;
    const bool open = is_open(x, static_cast<int>(axis));
    const int64_t at = 1 + pick(static_cast<uint32_t>(size - 1));
    const ValueId middle =
        open && often() ? half_of(x, axis) : integers({open && often() ? -at : at});
    const ValueId end = open && often() ? size_of_axis(x, axis) : integers({INT32_MAX});
    const auto slice = [&](ValueId begin, ValueId end) {
      return add(Slice{}, {x, begin, end, integers({axis}), integers({1})});
    };
    const ValueId a = slice(integers({0}), middle), b = slice(middle, end);
    keep(a);
    keep(b);
    if (often()) keep(add(Concat{.axis = axis}, {a, often() ? b : unary(b)}));
  }

  void attention() {
    const ValueId x = any();
    if (shape(x).rank() != 3) return;
    const int64_t length = shape(x)[1], width = shape(x)[2];
    if (width == kOpen) return;
    const auto heads = [&](std::vector<int64_t> permutation) {
      const ValueId projected = add(MatMul{}, {x, constant({width, 4}, 0.5)});
      const ValueId split = add(Reshape{}, {projected, integers({0, 0, 2, 2})});
      return add(Transpose{std::move(permutation)}, {split});
    };
    const ValueId q = heads({0, 2, 1, 3}), k = heads({0, 2, 3, 1}), v = heads({0, 2, 1, 3});
    ValueId scores = binary(Opcode::kMul, add(MatMul{}, {q, k}), constant({}, 0.7));
    if (often() && length != kOpen)
      scores = binary(Opcode::kAdd, scores, constant({1, 1, length, length}));
    const ValueId weights = add(Softmax{.axis = 3}, {scores});
    const ValueId y = add(Transpose{{0, 2, 1, 3}}, {add(MatMul{}, {weights, v})});
    keep(add(Reshape{}, {y, list_of_sizes(y, {{0}, {1}, {2, 3}}, true)}));
  }

  Graph graph_;
  std::mt19937 random_;
  Flavour flavour_;
  DataType dtype_;
  std::vector<ValueId> values_;
};

}  // namespace

Graph random_graph(uint32_t seed, Flavour flavour) { return Maker(seed, flavour).make(); }

std::vector<Tensor> random_inputs(const Graph& graph, uint32_t seed, Flavour flavour,
                                  uint32_t binding) {
  std::vector<std::optional<int64_t>> symbols;
  for (const SizeSymbol& symbol : graph.sizes().symbols()) {
    const Bounds& bounds = symbol.bounds;
    symbols.emplace_back(binding == 0 ? bounds.opt : binding == 1 ? bounds.min : bounds.max);
  }
  std::mt19937 random(seed);
  std::vector<Tensor> inputs;
  for (const ValueId input : graph.inputs()) {
    const Type& type = graph.value(input).type();
    // Now and then far from 1, where clamps and small numbers show.
    const uint32_t strange = flavour == Flavour::kAnyValues   ? random() % 256
                             : flavour == Flavour::kNonFinite ? kNanAndInfinities
                                                              : 0;
    // With infinities only so far that no weight of a softmax underflows: 0 times one is NaN.
    const bool far = seed % 8 == 0 && flavour != Flavour::kNonFinite;
    const double scale = far ? 12 : seed % 8 == 1 ? 1e-3 : 1;
    inputs.push_back(random_tensor(type.dtype, graph.sizes().evaluate(type.shape, symbols), random,
                                   scale, strange));
  }
  return inputs;
}

}  // namespace anneal::testing
