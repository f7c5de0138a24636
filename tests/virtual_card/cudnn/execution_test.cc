// The fake cuDNN on the virtual card against plain loops.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>

#include "anneal/tests/virtual_card/cudnn/on_card.h"

namespace anneal::fake_cudnn {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

size_t count_of(const Sizes& dims) {
  size_t count = 1;
  for (const int64_t each : dims) count *= static_cast<size_t>(each);
  return count;
}
// The place of an element in memory, by its indices.
size_t at(const Sizes& strides, const Sizes& index) {
  int64_t place = 0;
  for (size_t i = 0; i < index.size(); ++i) place += strides[i] * index[i];
  return static_cast<size_t>(place);
}

// Of two spatial dimensions; strides of memory are given for each tensor.
struct PlainConvolution {
  Sizes x, w, y, x_strides, w_strides, y_strides;
  ConvolutionSpec spec;

  Numbers run(const Numbers& from, const Numbers& filters) const {
    Numbers to(count_of(y));
    const int64_t groups = x[1] / w[1], filters_of_group = w[0] / groups;
    for (int64_t n = 0; n < y[0]; ++n)
      for (int64_t k = 0; k < y[1]; ++k)
        for (int64_t h = 0; h < y[2]; ++h)
          for (int64_t v = 0; v < y[3]; ++v) {
            double sum = 0;
            for (int64_t c = 0; c < w[1]; ++c)
              for (int64_t r = 0; r < w[2]; ++r)
                for (int64_t s = 0; s < w[3]; ++s) {
                  const int64_t row = h * spec.strides[0] + r * spec.dilations[0] - spec.pre[0],
                                column = v * spec.strides[1] + s * spec.dilations[1] - spec.pre[1],
                                channel = k / filters_of_group * w[1] + c;
                  if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) continue;
                  sum += double{from[at(x_strides, {n, channel, row, column})]} *
                         double{filters[at(w_strides, {k, c, r, s})]};
                }
            to[at(y_strides, {n, k, h, v})] = static_cast<float>(sum);
          }
    return to;
  }
};

using FakeCudnn = OnCard;

TensorSpec f32(int64_t uid, const Sizes& dims, const Sizes& strides, bool is_virtual = false) {
  return {.uid = uid, .dims = dims, .strides = strides, .is_virtual = is_virtual};
}

TEST_F(FakeCudnn, ConvolutionsInBothLayouts) {
  struct Case {
    Sizes x, w, y;
    ConvolutionSpec spec;
  };
  const Case cases[] = {
      {{2, 8, 7, 9}, {6, 8, 3, 3}, {2, 6, 7, 9}, {}},
      {{1, 8, 9, 9},
       {8, 4, 3, 3},
       {1, 8, 4, 4},
       {.strides = {2, 2}, .pre = {0, 0}, .post = {0, 0}}},
      {{1, 6, 9, 8},
       {6, 1, 3, 2},
       {1, 6, 6, 10},
       {.strides = {1, 1}, .pre = {0, 1}, .post = {1, 3}, .dilations = {2, 2}}},
  };
  for (const Case& c : cases)
    for (const bool is_channels_last : {true, false}) {
      const auto strides = [&](const Sizes& dims) {
        return is_channels_last ? channels_last(dims) : row_major(dims);
      };
      const Numbers from = random_numbers(count_of(c.x), 1),
                    filters = random_numbers(count_of(c.w), 2);
      const Made x = tensor(library, f32(1, c.x, strides(c.x))),
                 w = tensor(library, f32(2, c.w, strides(c.w))),
                 y = tensor(library, f32(3, c.y, strides(c.y)));
      const Made operation = convolution(x, w, y, c.spec);
      Made made = plan_of(graph({&operation}));
      const auto to = allocate(count_of(c.y) * 4);
      run(made, {{1, upload(from)}, {2, upload(filters)}, {3, to}});
      const PlainConvolution plain{c.x, c.w, c.y, strides(c.x), strides(c.w), strides(c.y), c.spec};
      EXPECT_THAT(download<float>(to, count_of(c.y)),
                  Pointwise(FloatNear(1e-5f), plain.run(from, filters)));
    }
}

TEST_F(FakeCudnn, EachConfigurationGivesTheSame) {
  const Sizes dims = {1, 8, 6, 6}, filter = {8, 8, 3, 3}, strides = channels_last(dims);
  const auto of = [&](int64_t uid, const Sizes& d) {
    return tensor(library,
                  {.uid = uid, .dims = d, .strides = channels_last(d), .type = CUDNN_DATA_HALF});
  };
  const Made operation = convolution(of(1, dims), of(2, filter), of(3, dims), {});
  const Made g = graph({&operation});
  const auto from = upload_half(random_numbers(count_of(dims), 1)),
             filters = upload_half(random_numbers(count_of(filter), 2));
  Numbers first;
  for (size_t i = 0; i < 8; ++i) {
    const auto to = allocate(count_of(dims) * 2);
    Made made = plan_of(g, i);
    run(made, {{1, from}, {2, filters}, {3, to}});
    const Numbers result = download_half(to, count_of(dims));
    if (i == 0) first = result;
    EXPECT_EQ(result, first) << i;
  }
}

TEST_F(FakeCudnn, ABiasAResidualAndAnActivationInF16) {
  const Sizes dims = {2, 8, 5, 5}, filter = {8, 8, 1, 1}, bias = {1, 8, 1, 1};
  const auto of = [&](int64_t uid, const Sizes& d, bool is_virtual = false) {
    return tensor(library, {.uid = uid,
                            .dims = d,
                            .strides = channels_last(d),
                            .type = is_virtual ? CUDNN_DATA_FLOAT : CUDNN_DATA_HALF,
                            .is_virtual = is_virtual});
  };
  const Made x = of(1, dims), w = of(2, filter), y = of(3, dims), b = of(4, bias), z = of(5, dims);
  const Made sum = of(6, dims, true), added = of(7, dims, true), biased = of(8, dims, true);
  const ConvolutionSpec spec{.pre = {0, 0}, .post = {0, 0}};
  const Made o1 = convolution(x, w, sum, spec), o2 = pointwise(CUDNN_POINTWISE_ADD, sum, &z, added),
             o3 = pointwise(CUDNN_POINTWISE_ADD, added, &b, biased),
             o4 = pointwise(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y);
  Made made = plan_of(graph({&o1, &o2, &o3, &o4}), 1);
  const Numbers from = random_numbers(count_of(dims), 1), filters = random_numbers(64, 2),
                biases = random_numbers(8, 3), residual = random_numbers(count_of(dims), 4);
  const auto to = allocate(count_of(dims) * 2);
  run(made, {{1, upload_half(from)},
             {2, upload_half(filters)},
             {3, to},
             {4, upload_half(biases)},
             {5, upload_half(residual)}});
  const Sizes strides = channels_last(dims);
  const PlainConvolution plain{dims, filter, dims, strides, channels_last(filter), strides, spec};
  Numbers expected = plain.run(from, filters);
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = to_f32(to_f16(std::max(expected[i] + residual[i] + biases[i % 8], 0.0f)));
  EXPECT_THAT(download_half(to, expected.size()), Pointwise(FloatNear(4e-3f), expected));
}

TEST_F(FakeCudnn, IntegerSumsAreExactAndResultsSaturate) {
  const Sizes dims = {1, 16, 3, 3}, filter = {16, 16, 3, 3}, one = {1, 1, 1, 1};
  const auto of = [&](int64_t uid, const Sizes& d, DataType type, bool is_virtual = false) {
    return tensor(library, {.uid = uid,
                            .dims = d,
                            .strides = channels_last(d),
                            .type = type,
                            .is_virtual = is_virtual});
  };
  const Made x = of(1, dims, CUDNN_DATA_INT8), w = of(2, filter, CUDNN_DATA_INT8),
             y = of(3, dims, CUDNN_DATA_INT8), scale = of(4, one, CUDNN_DATA_FLOAT),
             sum = of(5, dims, CUDNN_DATA_INT32, true);
  const Made o1 = convolution(x, w, sum, {.compute = CUDNN_DATA_INT32}),
             o2 = pointwise(CUDNN_POINTWISE_MUL, sum, &scale, y);
  Made made = plan_of(graph({&o1, &o2}));
  const auto to = allocate(count_of(dims));
  run(made, {{1, upload(std::vector<int8_t>(count_of(dims), 127))},
             {2, upload(std::vector<int8_t>(count_of(filter), -127))},
             {3, to},
             {4, upload(Numbers{1.0f / 16129 / 2})}});
  // A corner has 4 of 9 places: 16 * 4 / 2 = 32. The middle: 72.
  const auto result = download<int8_t>(to, count_of(dims));
  EXPECT_EQ(result[0], -32);
  EXPECT_EQ(result[4 * 16], -72);
  const auto large = allocate(count_of(dims));
  run(made, {{1, upload(std::vector<int8_t>(count_of(dims), 127))},
             {2, upload(std::vector<int8_t>(count_of(filter), -127))},
             {3, large},
             {4, upload(Numbers{1})}});
  EXPECT_EQ(download<int8_t>(large, count_of(dims))[0], -128);
}

// A transposed convolution is the adjoint of a convolution: <conv(x), y> = <x, transposed(y)>.
TEST_F(FakeCudnn, TransposedConvolutions) {
  const Sizes x = {2, 4, 9, 7}, w = {6, 2, 3, 3}, y = {2, 6, 5, 4};
  const ConvolutionSpec spec{.strides = {2, 2}};
  const auto of = [&](int64_t uid, const Sizes& d) {
    return tensor(library, f32(uid, d, channels_last(d)));
  };
  const Numbers xs = random_numbers(count_of(x), 1), ws = random_numbers(count_of(w), 2),
                ys = random_numbers(count_of(y), 3);
  const Made forward = convolution(of(1, x), of(2, w), of(3, y), spec),
             backward = transposed_convolution(of(3, y), of(2, w), of(1, x), spec);
  Made first = plan_of(graph({&forward})), second = plan_of(graph({&backward}));
  const auto filters = upload(ws), to_y = allocate(ys.size() * 4), to_x = allocate(xs.size() * 4);
  run(first, {{1, upload(xs)}, {2, filters}, {3, to_y}});
  run(second, {{3, upload(ys)}, {2, filters}, {1, to_x}});
  const Numbers made_y = download<float>(to_y, ys.size()),
                made_x = download<float>(to_x, xs.size());
  double left = 0, right = 0;
  for (size_t i = 0; i < ys.size(); ++i) left += double{made_y[i]} * double{ys[i]};
  for (size_t i = 0; i < xs.size(); ++i) right += double{made_x[i]} * double{xs[i]};
  EXPECT_NEAR(left, right, 1e-4);
  EXPECT_GT(std::abs(left), 0.1);
}

TEST_F(FakeCudnn, ConvolutionsOfOneAndThreeDimensions) {
  // Filters of ones: sums of neighbours.
  const Made o1 = convolution(tensor(library, {.uid = 1, .dims = {1, 1, 5}}),
                              tensor(library, {.uid = 2, .dims = {1, 1, 3}}),
                              tensor(library, {.uid = 3, .dims = {1, 1, 5}}),
                              {.strides = {1}, .pre = {1}, .post = {1}, .dilations = {1}});
  Made line = plan_of(graph({&o1}));
  const auto to = allocate(20);
  run(line, {{1, upload(Numbers{1, 2, 3, 4, 5})}, {2, upload(Numbers{1, 1, 1})}, {3, to}});
  EXPECT_EQ(download<float>(to, 5), (Numbers{3, 6, 9, 12, 9}));
  const Made o3 = convolution(
      tensor(library, {.uid = 1, .dims = {1, 1, 2, 2, 2}}),
      tensor(library, {.uid = 2, .dims = {1, 1, 2, 1, 2}}),
      tensor(library, {.uid = 3, .dims = {1, 1, 1, 2, 1}}),
      {.strides = {1, 1, 1}, .pre = {0, 0, 0}, .post = {0, 0, 0}, .dilations = {1, 1, 1}});
  Made cube = plan_of(graph({&o3}));
  run(cube,
      {{1, upload(Numbers{1, 2, 3, 4, 5, 6, 7, 8})}, {2, upload(Numbers{1, 1, 1, 1})}, {3, to}});
  EXPECT_EQ(download<float>(to, 2), (Numbers{14, 22}));
}

TEST_F(FakeCudnn, ProductsShareMatricesOfTheOtherOperand) {
  const Made a = tensor(library, {.uid = 1, .dims = {4, 2, 3}}),
             b = tensor(library, {.uid = 2, .dims = {2, 3, 2}}),
             c = tensor(library, {.uid = 3, .dims = {4, 2, 2}, .is_virtual = true}),
             half = tensor(library, {.uid = 4, .dims = {1, 1, 1}, .is_by_value = true}),
             y = tensor(library, {.uid = 5, .dims = {4, 2, 2}});
  const Made o1 = product(a, b, c), o2 = pointwise(CUDNN_POINTWISE_MUL, c, &half, y);
  Made made = plan_of(graph({&o1, &o2}));
  const Numbers left = random_numbers(24, 1), right = random_numbers(12, 2);
  const auto to = allocate(64);
  float factor = 0.5f;
  run(made, {{1, upload(left)},
             {2, upload(right)},
             {4, reinterpret_cast<cuda::CUdeviceptr>(&factor)},
             {5, to}});
  factor = 100;  // it was read at the call
  Numbers expected;
  for (size_t i = 0; i < 4; ++i)
    for (size_t m = 0; m < 2; ++m)
      for (size_t n = 0; n < 2; ++n) {
        double sum = 0;
        for (size_t k = 0; k < 3; ++k)
          sum += double{left[(i * 2 + m) * 3 + k]} * double{right[(i / 2 * 3 + k) * 2 + n]};
        expected.push_back(static_cast<float>(sum * 0.5));
      }
  EXPECT_THAT(download<float>(to, 16), Pointwise(FloatNear(1e-6f), expected));
}

// Rows of a causal mask from indices, softmax by reductions, and two products.
TEST_F(FakeCudnn, AttentionOfOperationsIsThatOfOneOperation) {
  const Sizes q = {2, 4, 6, 8}, k = {2, 2, 6, 8}, scores = {2, 4, 6, 6}, row = {2, 4, 6, 1};
  const auto of = [&](int64_t uid, const Sizes& d, Sizes strides = {}) {
    return tensor(library,
                  {.uid = uid, .dims = d, .strides = std::move(strides), .type = CUDNN_DATA_HALF});
  };
  const auto between = [&](int64_t uid, const Sizes& d) {
    return tensor(library, {.uid = uid, .dims = d, .is_virtual = true});
  };
  const Made scale = tensor(library, {.uid = 9, .dims = {1, 1, 1, 1}, .is_by_value = true});
  const Made queries = of(1, q), keys = of(2, k), values = of(3, k), result = of(4, q);
  const Made whole = attention(queries, keys, values, &scale, result);
  Made first = plan_of(graph({&whole}), 1);
  // Keys with rows and columns exchanged.
  const Made turned = of(2, {2, 2, 8, 6}, {96, 48, 1, 8});
  const Made s = between(10, scores), scaled = between(11, scores), most = between(12, row),
             less = between(13, scores), powers = between(14, scores), sum = between(15, row),
             weights = between(16, scores);
  const Made o1 = product(queries, turned, s),
             o2 = pointwise(CUDNN_POINTWISE_MUL, s, &scale, scaled),
             o3 = reduction(CUDNN_REDUCE_TENSOR_MAX, scaled, most),
             o4 = pointwise(CUDNN_POINTWISE_SUB, scaled, &most, less),
             o5 = pointwise(CUDNN_POINTWISE_EXP, less, nullptr, powers),
             o6 = reduction(CUDNN_REDUCE_TENSOR_ADD, powers, sum),
             o7 = pointwise(CUDNN_POINTWISE_DIV, powers, &sum, weights),
             o8 = product(weights, values, result);
  Made second = plan_of(graph({&o1, &o2, &o3, &o4, &o5, &o6, &o7, &o8}), 1);
  const auto from_q = upload_half(random_numbers(count_of(q), 1)),
             from_k = upload_half(random_numbers(count_of(k), 2)),
             from_v = upload_half(random_numbers(count_of(k), 3));
  float factor = 0.3f;
  const auto value = reinterpret_cast<cuda::CUdeviceptr>(&factor);
  const auto to_first = allocate(count_of(q) * 2), to_second = allocate(count_of(q) * 2);
  run(first, {{1, from_q}, {2, from_k}, {3, from_v}, {4, to_first}, {9, value}});
  run(second, {{1, from_q}, {2, from_k}, {3, from_v}, {4, to_second}, {9, value}});
  const Numbers one = download_half(to_first, count_of(q));
  EXPECT_THAT(download_half(to_second, count_of(q)), Pointwise(FloatNear(1e-3f), one));
  EXPECT_GT(std::abs(one[5]), 1e-4f);
}

TEST_F(FakeCudnn, AMaskOfIndicesSelects) {
  const Sizes dims = {1, 3, 3};
  const auto between = [&](int64_t uid, DataType type = CUDNN_DATA_FLOAT) {
    return tensor(library, {.uid = uid, .dims = dims, .type = type, .is_virtual = true});
  };
  const Made a = tensor(library, {.uid = 1, .dims = dims}),
             b = tensor(library, {.uid = 2, .dims = dims}), c = between(3), row = between(4),
             column = tensor(library, {.uid = 5, .dims = {1, 1, 3}}),
             is_kept = between(6, CUDNN_DATA_BOOLEAN),
             nothing = tensor(library, {.uid = 7, .dims = {1, 1, 1}, .is_by_value = true}),
             y = tensor(library, {.uid = 8, .dims = dims});
  const Made o1 = product(a, b, c), o2 = pointwise(CUDNN_POINTWISE_GEN_INDEX, c, nullptr, row),
             o3 = pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, is_kept),
             o4 = pointwise(CUDNN_POINTWISE_BINARY_SELECT, c, &nothing, y, &is_kept);
  Made made = plan_of(graph({&o1, &o2, &o3, &o4}));
  const auto to = allocate(36);
  float lowest = -7;
  run(made, {{1, upload(Numbers{1, 0, 0, 0, 1, 0, 0, 0, 1})},
             {2, upload(Numbers{1, 2, 3, 4, 5, 6, 7, 8, 9})},
             {5, upload(Numbers{0, 1, 2})},
             {7, reinterpret_cast<cuda::CUdeviceptr>(&lowest)},
             {8, to}});
  EXPECT_EQ(download<float>(to, 9), (Numbers{1, -7, -7, 4, 5, -7, 7, 8, 9}));
}

TEST_F(FakeCudnn, ALayerOfARealSizeTakesLittleTime) {
  const Sizes dims = {1, 64, 56, 56}, filter = {64, 64, 3, 3};
  const auto of = [&](int64_t uid, const Sizes& d) {
    return tensor(library,
                  {.uid = uid, .dims = d, .strides = channels_last(d), .type = CUDNN_DATA_HALF});
  };
  const Made operation = convolution(of(1, dims), of(2, filter), of(3, dims), {});
  Made made = plan_of(graph({&operation}));
  const auto from = upload_half(random_numbers(count_of(dims), 1)),
             filters = upload_half(random_numbers(count_of(filter), 2)),
             to = allocate(count_of(dims) * 2);
  const auto begin = std::chrono::steady_clock::now();
  run(made, {{1, from}, {2, filters}, {3, to}});
  download_half(to, count_of(dims));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  RecordProperty("seconds", std::to_string(taken.count()));
  EXPECT_LT(taken.count(), 5);
}

}  // namespace
}  // namespace anneal::fake_cudnn
