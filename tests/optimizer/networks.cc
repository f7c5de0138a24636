#include "anneal/tests/optimizer/networks.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

namespace anneal::testing {
namespace {

class Network {
 public:
  explicit Network(std::string name) { graph_.name = std::move(name); }

  ValueId input(const std::string& name, const Dims& dims) {
    return graph_.add_input(name, {DataType::kF32, shape_of(dims)});
  }
  Graph finish(ValueId output) {
    graph_.mark_output(output, "y");
    return std::move(graph_);
  }

  ValueId layer(const std::string& name, Op op, std::vector<ValueId> inputs) {
    const LayerId id = graph_.add({.name = name, .op = std::move(op), .inputs = std::move(inputs)});
    return graph_.layer(id).outputs[0];
  }
  ValueId pointwise(const std::string& name, std::string_view program,
                    std::vector<ValueId> inputs) {
    return layer(name, Pointwise{parse_program(program)}, std::move(inputs));
  }
  ValueId add(const std::string& name, ValueId a, ValueId b) {
    return pointwise(name, "(f32,f32)->(f32) add($0,$1)", {a, b});
  }
  ValueId relu(const std::string& name, ValueId x) {
    return pointwise(name, "(f32)->(f32) max($0,0f32)", {x});
  }
  ValueId weights(const std::string& name, const Dims& dims, double deviation, double mean = 0) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count(dims)));
    for (float& value : values)
      value = normal(random_) * static_cast<float>(deviation) + static_cast<float>(mean);
    return graph_.add_constant(name, Tensor::of<float>(DataType::kF32, dims, values));
  }
  ValueId integers(const std::string& name, const std::vector<int64_t>& values) {
    return graph_.add_constant(
        name, Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(values.size())}, values));
  }
  int64_t size(ValueId value, int axis) const {
    return graph_.value(value).type().shape[axis].value();
  }

  ValueId conv(const std::string& name, ValueId x, int64_t channels, int64_t kernel,
               int64_t stride = 1) {
    const int64_t from = size(x, 1), pad = kernel / 2;
    const double deviation = std::sqrt(2.0 / static_cast<double>(from * kernel * kernel));
    return layer(name,
                 Conv{.strides = {stride, stride},
                      .pads_begin = {pad, pad},
                      .pads_end = {pad, pad},
                      .dilations = {1, 1}},
                 {x, weights(name + ".w", {channels, from, kernel, kernel}, deviation)});
  }
  ValueId max_pool(const std::string& name, ValueId x, int64_t stride, int64_t pad) {
    return layer(name,
                 Pool{.kernel = {3, 3},
                      .strides = {stride, stride},
                      .pads_begin = {pad, pad},
                      .pads_end = {pad, pad},
                      .dilations = {1, 1}},
                 {x});
  }
  ValueId spatial_mean(const std::string& name, ValueId x) {
    return layer(name, Reduce{.kind = ReduceKind::kMean}, {x, integers(name + ".axes", {2, 3})});
  }
  ValueId reshape(const std::string& name, ValueId x, const std::vector<int64_t>& to) {
    return layer(name, Reshape{}, {x, integers(name + ".shape", to)});
  }
  ValueId linear(const std::string& name, ValueId x, int64_t to) {
    const int64_t from = size(x, graph_.value(x).type().shape.rank() - 1);
    const double deviation = std::sqrt(1.0 / static_cast<double>(from));
    const ValueId product = layer(name, MatMul{}, {x, weights(name + ".w", {from, to}, deviation)});
    return add(name + ".add", product, weights(name + ".b", {to}, 0.1));
  }

 private:
  Graph graph_;
  std::mt19937 random_{1};
};

ValueId conv_relu(Network& net, const std::string& name, ValueId x, int64_t channels,
                  int64_t kernel, int64_t stride = 1) {
  const ValueId c = net.conv(name, x, channels, kernel, stride);
  return net.relu(name + ".relu",
                  net.add(name + ".add", c, net.weights(name + ".b", {channels, 1, 1}, 0.1)));
}

ValueId conv_norm_relu(Network& net, const std::string& name, ValueId x, int64_t channels,
                       int64_t kernel, int64_t stride = 1) {
  const ValueId c = net.conv(name, x, channels, kernel, stride);
  const Dims dims = {channels, 1, 1};
  const ValueId normal = net.pointwise(
      name + ".norm", "(f32,f32,f32)->(f32) add(mul($0,$1),$2)",
      {c, net.weights(name + ".scale", dims, 0.1, 1), net.weights(name + ".shift", dims, 0.1)});
  return net.relu(name + ".relu", normal);
}

// Channels of GoogLeNet's table 1 divided by 8.
struct Inception {
  int64_t one, three_reduce, three, five_reduce, five, pool;
};

ValueId inception(Network& net, const std::string& name, ValueId x, const Inception& size) {
  const auto conv = [&](const char* part, ValueId from, int64_t channels, int64_t kernel) {
    return conv_norm_relu(net, name + part, from, channels, kernel);
  };
  const ValueId one = conv(".1x1", x, size.one, 1);
  const ValueId three = conv(".3x3", conv(".3x3_reduce", x, size.three_reduce, 1), size.three, 3);
  const ValueId five = conv(".5x5", conv(".5x5_reduce", x, size.five_reduce, 1), size.five, 5);
  const ValueId pool = conv(".pool_proj", net.max_pool(name + ".pool", x, 1, 1), size.pool, 1);
  return net.layer(name + ".concat", Concat{.axis = 1}, {one, three, five, pool});
}

ValueId layer_norm(Network& net, const std::string& name, ValueId x) {
  const int64_t width = net.size(x, 2);
  const auto mean = [&](const std::string& part, ValueId of) {
    return net.layer(name + part, Reduce{.kind = ReduceKind::kMean},
                     {of, net.integers(name + part + ".axes", {-1})});
  };
  const ValueId centred =
      net.pointwise(name + ".sub", "(f32,f32)->(f32) sub($0,$1)", {x, mean(".mean", x)});
  const ValueId squares = net.pointwise(name + ".pow", "(f32)->(f32) pow($0,2f32)", {centred});
  const ValueId shifted = net.pointwise(name + ".eps", "(f32)->(f32) add($0,9.99999975e-06f32)",
                                        {mean(".variance", squares)});
  const ValueId deviation = net.pointwise(name + ".sqrt", "(f32)->(f32) sqrt($0)", {shifted});
  const ValueId normal =
      net.pointwise(name + ".div", "(f32,f32)->(f32) div($0,$1)", {centred, deviation});
  const ValueId scaled = net.pointwise(name + ".mul", "(f32,f32)->(f32) mul($0,$1)",
                                       {normal, net.weights(name + ".gamma", {width}, 0.1, 1)});
  return net.add(name + ".add", scaled, net.weights(name + ".beta", {width}, 0.1));
}

ValueId gelu(Network& net, const std::string& name, ValueId x) {
  const ValueId erf = net.pointwise(name + ".erf", "(f32)->(f32) erf(div($0,1.41421354f32))", {x});
  const ValueId product =
      net.pointwise(name + ".mul", "(f32,f32)->(f32) mul($0,add($1,1f32))", {x, erf});
  return net.pointwise(name + ".half", "(f32)->(f32) mul($0,0.5f32)", {product});
}

ValueId self_attention(Network& net, const std::string& name, ValueId x, ValueId mask) {
  const int64_t batch = net.size(x, 0), length = net.size(x, 1), width = net.size(x, 2);
  const auto heads = [&](const char* part, std::vector<int64_t> permutation) {
    const ValueId split = net.reshape(name + part + ".split", net.linear(name + part, x, width),
                                      {batch, length, 4, width / 4});
    return net.layer(name + part + ".heads", Transpose{std::move(permutation)}, {split});
  };
  const ValueId q = heads(".q", {0, 2, 1, 3}), k = heads(".k", {0, 2, 3, 1});
  const ValueId v = heads(".v", {0, 2, 1, 3});
  const ValueId scaled = net.pointwise(name + ".scale", "(f32)->(f32) div($0,2.82842708f32)",
                                       {net.layer(name + ".scores", MatMul{}, {q, k})});
  const ValueId weights =
      net.layer(name + ".softmax", Softmax{.axis = 3}, {net.add(name + ".mask", scaled, mask)});
  const ValueId joined = net.layer(name + ".join", Transpose{{0, 2, 1, 3}},
                                   {net.layer(name + ".values", MatMul{}, {weights, v})});
  return net.linear(name + ".out", net.reshape(name + ".flat", joined, {batch, length, width}),
                    width);
}

ValueId group_norm(Network& net, const std::string& name, ValueId x, GroupNormStyle style) {
  const int64_t batch = net.size(x, 0), channels = net.size(x, 1), groups = 4;
  const ValueId grouped = net.reshape(name + ".groups", x, {batch, groups, -1});
  const auto normalize = [&] {
    return net.layer(name + ".normal", Normalize{.axes = {2}}, {grouped});
  };
  ValueId normal = ValueId::kNone;
  switch (style) {
    case GroupNormStyle::kOp:
      normal = normalize();
      break;
    case GroupNormStyle::kInstance:
      normal = net.pointwise(name + ".affine", "(f32,f32,f32)->(f32) add(mul($0,$1),$2)",
                             {normalize(), net.weights(name + ".ones", {groups, 1}, 0, 1),
                              net.weights(name + ".zeros", {groups, 1}, 0)});
      break;
    case GroupNormStyle::kWrittenOut: {
      const auto mean = [&](const std::string& part, ValueId of) {
        return net.layer(name + part, Reduce{.kind = ReduceKind::kMean},
                         {of, net.integers(name + part + ".axes", {2})});
      };
      const ValueId centred = net.pointwise(name + ".sub", "(f32,f32)->(f32) sub($0,$1)",
                                            {grouped, mean(".mean", grouped)});
      const ValueId squares = net.pointwise(name + ".square", "(f32)->(f32) mul($0,$0)", {centred});
      const ValueId deviation =
          net.pointwise(name + ".sqrt", "(f32)->(f32) sqrt(add($0,9.99999975e-06f32))",
                        {mean(".variance", squares)});
      normal = net.pointwise(name + ".div", "(f32,f32)->(f32) div($0,$1)", {centred, deviation});
      break;
    }
  }
  const ValueId whole =
      net.reshape(name + ".whole", normal, {batch, channels, net.size(x, 2), net.size(x, 3)});
  const ValueId scaled = net.pointwise(name + ".scale", "(f32,f32)->(f32) mul($0,$1)",
                                       {whole, net.weights(name + ".w", {channels, 1, 1}, 0.1, 1)});
  return net.add(name + ".shift", scaled, net.weights(name + ".b", {channels, 1, 1}, 0.1));
}

ValueId silu(Network& net, const std::string& name, ValueId x) {
  const ValueId gate = net.pointwise(name + ".sigmoid", "(f32)->(f32) sigmoid($0)", {x});
  return net.pointwise(name + ".mul", "(f32,f32)->(f32) mul($0,$1)", {x, gate});
}

}  // namespace

Graph group_norm_block(GroupNormStyle style) {
  Network net("group_norm_block");
  const ValueId x = net.conv("conv_in", net.input("x", {2, 8, 7, 5}), 12, 3);
  const ValueId a = silu(net, "silu1", group_norm(net, "norm1", x, style));
  const ValueId b =
      silu(net, "silu2", group_norm(net, "norm2", net.conv("conv1", a, 12, 3), style));
  const ValueId y = net.add("residual", net.conv("conv2", b, 12, 3), x);
  return net.finish(net.reshape("flat", net.spatial_mean("mean", y), {2, 12}));
}

Graph squeezenet() {
  Network net("squeezenet");
  ValueId x = net.input("x", {1, 3, 35, 35});
  x = net.max_pool("pool1", conv_relu(net, "conv1", x, 8, 3, 2), 2, 0);
  const int64_t squeezes[] = {2, 2, 4, 4, 6, 6, 8, 8};
  for (int i = 0; i < 8; ++i) {
    const std::string name = fmt::format("fire{}", i + 2);
    const int64_t squeeze = squeezes[i];
    if (i == 2 || i == 4) x = net.max_pool(name + ".pool", x, 2, 1);
    const ValueId s = conv_relu(net, name + ".squeeze", x, squeeze, 1);
    x = net.layer(name + ".concat", Concat{.axis = 1},
                  {conv_relu(net, name + ".expand1x1", s, 4 * squeeze, 1),
                   conv_relu(net, name + ".expand3x3", s, 4 * squeeze, 3)});
  }
  x = net.spatial_mean("mean", conv_relu(net, "conv10", x, 10, 1));
  return net.finish(net.reshape("flat", x, {1, 10}));
}

Graph googlenet() {
  Network net("googlenet");
  ValueId x = net.input("x", {1, 3, 64, 64});
  x = net.max_pool("pool1", conv_norm_relu(net, "conv1", x, 8, 7, 2), 2, 1);
  x = conv_norm_relu(net, "conv2", conv_norm_relu(net, "conv2_reduce", x, 8, 1), 24, 3);
  x = net.max_pool("pool2", x, 2, 1);
  const std::pair<const char*, Inception> blocks[] = {
      {"3a", {8, 12, 16, 2, 4, 4}},    {"3b", {16, 16, 24, 4, 12, 8}},
      {"4a", {24, 12, 26, 2, 6, 8}},   {"4b", {20, 14, 28, 3, 8, 8}},
      {"4c", {16, 16, 32, 3, 8, 8}},   {"4d", {14, 18, 36, 4, 8, 8}},
      {"4e", {32, 20, 40, 4, 16, 16}}, {"5a", {32, 20, 40, 4, 16, 16}},
      {"5b", {48, 24, 48, 6, 16, 16}}};
  for (const auto& [name, size] : blocks) {
    if (name == std::string_view("4a") || name == std::string_view("5a"))
      x = net.max_pool(fmt::format("pool_{}", name), x, 2, 1);
    x = inception(net, fmt::format("inception_{}", name), x, size);
  }
  x = net.reshape("flat", net.spatial_mean("mean", x), {1, 128});
  return net.finish(net.linear("classes", x, 10));
}

Graph bert(int layers) {
  Network net("bert");
  ValueId x = net.input("x", {2, 6, 32});
  const ValueId mask = net.input("mask", {2, 1, 1, 6});
  for (int i = 0; i < layers; ++i) {
    const std::string name = fmt::format("layer{}", i);
    const ValueId attended = self_attention(net, name + ".attention", x, mask);
    x = layer_norm(net, name + ".norm1", net.add(name + ".residual1", attended, x));
    const ValueId wide = gelu(net, name + ".gelu", net.linear(name + ".wide", x, 64));
    const ValueId narrow = net.linear(name + ".narrow", wide, 32);
    x = layer_norm(net, name + ".norm2", net.add(name + ".residual2", narrow, x));
  }
  return net.finish(x);
}

}  // namespace anneal::testing
