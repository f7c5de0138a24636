#include "anneal/tests/virtual_card/cudnn/refusals.h"

#include <bit>

namespace anneal::fake_cudnn {
namespace {

const Sizes kX = {2, 8, 6, 6}, kW = {16, 8, 3, 3}, kY = {2, 16, 6, 6}, kBias = {1, 16, 1, 1};

TensorSpec half(int64_t uid, const Sizes& dims, bool is_virtual = false) {
  return {.uid = uid,
          .dims = dims,
          .strides = channels_last(dims),
          .type = is_virtual ? CUDNN_DATA_FLOAT : CUDNN_DATA_HALF,
          .is_virtual = is_virtual};
}

// A tensor with one thing changed.
std::function<Made(const Library&)> wrong_tensor(std::function<void(TensorSpec&)> change) {
  return [change = std::move(change)](const Library& library) {
    TensorSpec spec{.uid = 1, .dims = {2, 3, 4, 5}};
    spec.strides = row_major(spec.dims);
    change(spec);
    return tensor(library, spec);
  };
}
std::function<Made(const Library&)> wrong_convolution(
    std::function<void(ConvolutionSpec&)> change) {
  return [change = std::move(change)](const Library& library) {
    ConvolutionSpec spec;
    change(spec);
    Made made = begin_convolution(library, spec);
    made.finalize();
    return made;
  };
}
std::function<Made(const Library&)> convolution_of(Sizes x, Sizes w, Sizes y) {
  return [=](const Library& l) {
    return convolution(tensor(l, half(1, x)), tensor(l, half(2, w)), tensor(l, half(3, y)), {});
  };
}
std::function<Made(const Library&)> product_of(Sizes a, Sizes b, Sizes c) {
  return [=](const Library& l) {
    const auto of = [&](int64_t uid, const Sizes& dims) {
      return tensor(l, {.uid = uid, .dims = dims, .type = CUDNN_DATA_HALF});
    };
    return product(of(1, a), of(2, b), of(3, c));
  };
}
std::function<Made(const Library&)> attention_of(Sizes q, Sizes k, Sizes v, Sizes o) {
  return [=](const Library& l) {
    const auto of = [&](int64_t uid, const Sizes& dims) {
      return tensor(l, {.uid = uid, .dims = dims, .type = CUDNN_DATA_HALF});
    };
    const Made scale = tensor(l, {.uid = 9, .dims = {1, 1, 1, 1}, .is_by_value = true});
    return attention(of(1, q), of(2, k), of(3, v), &scale, of(4, o));
  };
}

// conv, bias, ReLU
struct UsualGraph {
  explicit UsualGraph(const Library& l)
      : x(tensor(l, half(1, kX))),
        w(tensor(l, half(2, kW))),
        y(tensor(l, half(3, kY))),
        bias(tensor(l, half(4, kBias))),
        sum(tensor(l, half(5, kY, true))),
        biased(tensor(l, half(6, kY, true))),
        first(convolution(x, w, sum, {})),
        second(pointwise(CUDNN_POINTWISE_ADD, sum, &bias, biased)),
        third(pointwise(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y)) {}
  Made x, w, y, bias, sum, biased, first, second, third;
};

void add_tensors(std::vector<WrongDescriptor>& list) {
  const auto bad = CUDNN_STATUS_BAD_PARAM;
  list.push_back({"a tensor without attributes", CUDNN_ATTR_TENSOR_DATA_TYPE, bad, Real::kRefuses,
                  [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
                    made.finalize();
                    return made;
                  }});
  list.push_back({"an id of another type", CUDNN_ATTR_TENSOR_UNIQUE_ID,
                  CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
                    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1.0f);
                    return made;
                  }});
  list.push_back(
      {"two ids", CUDNN_ATTR_TENSOR_UNIQUE_ID, bad, Real::kRefuses, [](const Library& l) {
         Made made(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, Sizes{1, 2});
         return made;
       }});
  list.push_back({"a null array", CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
                    made.set_raw(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr);
                    return made;
                  }});
  list.push_back({"an attribute of another descriptor", CUDNN_ATTR_CONVOLUTION_COMP_TYPE, bad,
                  Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
                    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
                    return made;
                  }});
  list.push_back({"setting after finalizing", CUDNN_ATTR_TENSOR_UNIQUE_ID, bad, Real::kRefuses,
                  [](const Library& l) {
                    Made made = tensor(l, half(1, kX));
                    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{2});
                    return made;
                  }});
  list.push_back({"nine dimensions", CUDNN_ATTR_TENSOR_DIMENSIONS, bad, Real::kRefuses,
                  wrong_tensor([](TensorSpec& t) {
                    t.dims = Sizes(9, 1);
                    t.strides = Sizes(9, 1);
                  })});
  list.push_back({"an empty dimension", CUDNN_ATTR_TENSOR_DIMENSIONS, bad, Real::kTakes,
                  wrong_tensor([](TensorSpec& t) { t.dims[1] = 0; })});
  list.push_back({"three strides of four dimensions", CUDNN_ATTR_TENSOR_STRIDES, bad,
                  Real::kRefuses, wrong_tensor([](TensorSpec& t) { t.strides.pop_back(); })});
  list.push_back({"a negative stride", CUDNN_ATTR_TENSOR_STRIDES, bad, Real::kRefuses,
                  wrong_tensor([](TensorSpec& t) { t.strides[0] = -60; })});
  list.push_back({"elements that share memory", CUDNN_ATTR_TENSOR_STRIDES, bad, Real::kTakes,
                  wrong_tensor([](TensorSpec& t) { t.strides[0] = 20; })});
  list.push_back({"an alignment of 0", CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, bad, Real::kRefuses,
                  wrong_tensor([](TensorSpec& t) { t.alignment = 0; })});
  list.push_back({"an alignment of half an element", CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, bad,
                  Real::kRefuses, wrong_tensor([](TensorSpec& t) { t.alignment = 2; })});
  list.push_back({"an alignment that is no power of two", CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, bad,
                  Real::kTakes, wrong_tensor([](TensorSpec& t) { t.alignment = 12; })});
  list.push_back({"an unknown type", CUDNN_ATTR_TENSOR_DATA_TYPE, bad, Real::kEndsTheProcess,
                  wrong_tensor([](TensorSpec& t) { t.type = static_cast<DataType>(99); })});
  list.push_back({"several elements by value", CUDNN_ATTR_TENSOR_IS_BY_VALUE, bad, Real::kRefuses,
                  wrong_tensor([](TensorSpec& t) { t.is_by_value = true; })});
}

void add_convolutions(std::vector<WrongDescriptor>& list) {
  const auto bad = CUDNN_STATUS_BAD_PARAM, shape = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  list.push_back({"a convolution without attributes", CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, bad,
                  Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
                    made.finalize();
                    return made;
                  }});
  list.push_back({"a stride of 0", CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, bad, Real::kRefuses,
                  wrong_convolution([](ConvolutionSpec& c) { c.strides[1] = 0; })});
  list.push_back({"a dilation of 0", CUDNN_ATTR_CONVOLUTION_DILATIONS, bad, Real::kRefuses,
                  wrong_convolution([](ConvolutionSpec& c) { c.dilations[0] = 0; })});
  list.push_back({"a negative padding", CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, bad, Real::kRefuses,
                  wrong_convolution([](ConvolutionSpec& c) { c.pre[0] = -1; })});
  list.push_back({"three paddings of two dimensions", CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, bad,
                  Real::kRefuses, wrong_convolution([](ConvolutionSpec& c) {
                    c.post = {1, 1, 1};
                  })});
  list.push_back({"sums in f16", CUDNN_ATTR_CONVOLUTION_COMP_TYPE, bad, Real::kTakes,
                  wrong_convolution([](ConvolutionSpec& c) { c.compute = CUDNN_DATA_HALF; })});
  list.push_back(
      {"an image whose height is the fastest axis", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, bad,
       Real::kTakes, [](const Library& l) {
         TensorSpec turned = half(1, kX);
         turned.strides = {8 * 6 * 6, 6, 1, 8 * 6};
         return convolution(tensor(l, turned), tensor(l, half(2, kW)), tensor(l, half(3, kY)), {});
       }});
  list.push_back({"a convolution that is not finalized",
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, Real::kRefuses, [](const Library& l) {
                    const Made x = tensor(l, half(1, kX)), w = tensor(l, half(2, kW)),
                               y = tensor(l, half(3, kY));
                    const Made part = begin_convolution(l, {});
                    Made made(l, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
                    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part)
                        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
                        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
                        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
                        .finalize();
                    return made;
                  }});
  list.push_back({"a tensor that is not finalized", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, Real::kRefuses, [](const Library& l) {
                    return convolution(begin_tensor(l, half(1, kX)), tensor(l, half(2, kW)),
                                       tensor(l, half(3, kY)), {});
                  }});
  list.push_back({"a tensor in the place of a convolution",
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, Real::kTakes, [](const Library& l) {
                    const Made x = tensor(l, half(1, kX));
                    Made made(l, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
                    made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, x);
                    return made;
                  }});
  list.push_back({"a result that is too low", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, shape,
                  Real::kRefuses, convolution_of(kX, kW, {2, 16, 5, 6})});
  list.push_back({"a result of other filters", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, shape,
                  Real::kRefuses, convolution_of(kX, kW, {2, 8, 6, 6})});
  list.push_back({"filters of other channels", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, shape,
                  Real::kRefuses, convolution_of(kX, {16, 3, 3, 3}, kY)});
  list.push_back({"filters with gaps", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, bad,
                  Real::kRefuses, [](const Library& l) {
                    TensorSpec w = half(2, kW);
                    for (int64_t& stride : w.strides)
                      if (stride != 1) stride *= 2;
                    return convolution(tensor(l, half(1, kX)), tensor(l, w), tensor(l, half(3, kY)),
                                       {});
                  }});
  list.push_back({"x of three dimensions", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, shape,
                  Real::kRefuses, convolution_of({2, 8, 6}, kW, kY)});
  list.push_back({"the output is an input", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, bad,
                  Real::kTakes, [](const Library& l) {
                    const Made x = tensor(l, half(1, kX));
                    return convolution(x, tensor(l, half(2, {8, 8, 3, 3})), x, {});
                  }});
  list.push_back({"integers that are summed in f32", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  bad, Real::kTakes, [](const Library& l) {
                    TensorSpec x = half(1, kX), w = half(2, kW);
                    x.type = w.type = CUDNN_DATA_INT8;
                    return convolution(tensor(l, x), tensor(l, w), tensor(l, half(3, kY)), {});
                  }});
}

void add_others(std::vector<WrongDescriptor>& list) {
  const auto bad = CUDNN_STATUS_BAD_PARAM, shape = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  list.push_back({"an addition of one operand", CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bad,
                  Real::kRefuses, [](const Library& l) {
                    return pointwise(CUDNN_POINTWISE_ADD, tensor(l, half(1, kY)), nullptr,
                                     tensor(l, half(2, kY)));
                  }});
  list.push_back({"a ReLU of two operands", CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bad, Real::kTakes,
                  [](const Library& l) {
                    const Made b = tensor(l, half(3, kY));
                    return pointwise(CUDNN_POINTWISE_RELU_FWD, tensor(l, half(1, kY)), &b,
                                     tensor(l, half(2, kY)));
                  }});
  list.push_back({"a bias of other channels", CUDNN_ATTR_OPERATION_POINTWISE_BDESC, shape,
                  Real::kTakes, [](const Library& l) {
                    const Made b = tensor(l, half(3, {1, 8, 1, 1}));
                    return pointwise(CUDNN_POINTWISE_ADD, tensor(l, half(1, kY)), &b,
                                     tensor(l, half(2, kY)));
                  }});
  list.push_back({"a bias of one dimension", CUDNN_ATTR_OPERATION_POINTWISE_BDESC, shape,
                  Real::kRefuses, [](const Library& l) {
                    const Made b = tensor(l, {.uid = 3, .dims = {16}});
                    return pointwise(CUDNN_POINTWISE_ADD, tensor(l, half(1, kY)), &b,
                                     tensor(l, half(2, kY)));
                  }});
  list.push_back({"a larger result", CUDNN_ATTR_OPERATION_POINTWISE_YDESC, shape, Real::kTakes,
                  [](const Library& l) {
                    return pointwise(CUDNN_POINTWISE_RELU_FWD, tensor(l, half(1, kBias)), nullptr,
                                     tensor(l, half(2, kY)));
                  }});
  list.push_back(
      {"an unknown mode", CUDNN_ATTR_POINTWISE_MODE, bad, Real::kTakes, [](const Library& l) {
         Made made(l, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
         made.set(CUDNN_ATTR_POINTWISE_MODE, static_cast<PointwiseMode>(77))
             .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
             .finalize();
         return made;
       }});
  list.push_back({"a product of other depths", CUDNN_ATTR_OPERATION_MATMUL_BDESC, shape,
                  Real::kRefuses, product_of({4, 8, 16}, {4, 15, 8}, {4, 8, 8})});
  list.push_back({"a product with another result", CUDNN_ATTR_OPERATION_MATMUL_CDESC, shape,
                  Real::kRefuses, product_of({4, 8, 16}, {4, 16, 8}, {4, 7, 8})});
  list.push_back({"a product of other batches", CUDNN_ATTR_OPERATION_MATMUL_BDESC, shape,
                  Real::kRefuses, product_of({4, 8, 16}, {3, 16, 8}, {4, 8, 8})});
  list.push_back({"a reduction to other dimensions", CUDNN_ATTR_OPERATION_REDUCTION_YDESC, shape,
                  Real::kTakes, [](const Library& l) {
                    return reduction(CUDNN_REDUCE_TENSOR_ADD, tensor(l, half(1, kY)),
                                     tensor(l, half(2, {2, 16, 3, 1})));
                  }});
  list.push_back({"attention with keys of another depth", CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
                  shape, Real::kRefuses,
                  attention_of({2, 4, 8, 16}, {2, 4, 8, 8}, {2, 4, 8, 16}, {2, 4, 8, 16})});
  list.push_back({"attention with heads that do not divide", CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
                  shape, Real::kRefuses,
                  attention_of({2, 4, 8, 16}, {2, 3, 8, 16}, {2, 3, 8, 16}, {2, 4, 8, 16})});
  list.push_back({"attention with fewer values", CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, shape,
                  Real::kRefuses,
                  attention_of({2, 4, 8, 16}, {2, 4, 8, 16}, {2, 4, 7, 16}, {2, 4, 8, 16})});
  list.push_back({"attention with another result", CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, shape,
                  Real::kRefuses,
                  attention_of({2, 4, 8, 16}, {2, 4, 8, 16}, {2, 4, 8, 16}, {2, 4, 7, 16})});
}

void add_graphs(std::vector<WrongDescriptor>& list) {
  const auto ops = CUDNN_ATTR_OPERATIONGRAPH_OPS;
  const auto bad = CUDNN_STATUS_BAD_PARAM;
  list.push_back({"a graph without operations", ops, bad, Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
                    made.finalize();
                    return made;
                  }});
  list.push_back({"an operation twice", ops, bad, Real::kRefuses, [](const Library& l) {
                    const UsualGraph g(l);
                    return graph({&g.first, &g.first});
                  }});
  list.push_back(
      {"a virtual tensor that nothing writes", ops, bad, Real::kTakes, [](const Library& l) {
         const UsualGraph g(l);
         return graph({&g.second, &g.third});
       }});
  list.push_back(
      {"a graph whose results are virtual", ops, bad, Real::kTakes, [](const Library& l) {
         const UsualGraph g(l);
         return graph({&g.first, &g.second});
       }});
  list.push_back({"two tensors of one id", ops, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                  Real::kTakes, [](const Library& l) {
                    const UsualGraph g(l);
                    const Made other = tensor(l, half(1, kBias));
                    const Made addition = pointwise(CUDNN_POINTWISE_ADD, g.sum, &other, g.biased);
                    return graph({&g.first, &addition, &g.third});
                  }});
  list.push_back({"properties without the version", CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, bad,
                  Real::kRefuses, [](const Library& l) {
                    std::string text = property_text();
                    text.replace(text.find("deviceVer"), 9, "otherVer1");
                    return properties(l, text);
                  }});
  list.push_back({"properties that are no JSON", CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, bad,
                  Real::kRefuses, [](const Library& l) { return properties(l, "sm_90"); }});
  list.push_back({"heuristics without a graph", CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, bad,
                  Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
                    made.finalize();
                    return made;
                  }});
  list.push_back({"a plan without a configuration", CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                  CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, Real::kRefuses, [](const Library& l) {
                    const Made device = properties(l);
                    Made made(l, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
                    made.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device).finalize();
                    return made;
                  }});
  list.push_back({"two ids and one pointer", CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, bad,
                  Real::kRefuses, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
                    made.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Sizes{1, 2})
                        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                             std::vector<void*>{std::bit_cast<void*>(uintptr_t{256})})
                        .finalize();
                    return made;
                  }});
  list.push_back({"an id twice", CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                  CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, Real::kTakes, [](const Library& l) {
                    Made made(l, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
                    made.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Sizes{1, 1})
                        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                             std::vector<void*>(2, std::bit_cast<void*>(uintptr_t{256})))
                        .finalize();
                    return made;
                  }});
}

}  // namespace

std::vector<WrongDescriptor> wrong_descriptors() {
  std::vector<WrongDescriptor> list;
  add_tensors(list);
  add_convolutions(list);
  add_others(list);
  add_graphs(list);
  return list;
}

std::vector<RightGraph> right_graphs() {
  return {
      {"convolution",
       [](const Library& l) {
         const Made operation = convolution_of(kX, kW, kY)(l);
         return graph({&operation});
       }},
      {"convolution, bias, ReLU",
       [](const Library& l) {
         const UsualGraph g(l);
         return graph({&g.third, &g.first, &g.second});
       }},
      {"grouped convolution",
       [](const Library& l) {
         const Made operation = convolution_of(kX, {16, 4, 3, 3}, kY)(l);
         return graph({&operation});
       }},
      {"product",
       [](const Library& l) {
         const Made operation = product_of({4, 8, 16}, {1, 16, 8}, {4, 8, 8})(l);
         return graph({&operation});
       }},
      {"attention",
       [](const Library& l) {
         const Made operation =
             attention_of({2, 4, 8, 16}, {2, 2, 8, 16}, {2, 2, 8, 16}, {2, 4, 8, 16})(l);
         return graph({&operation});
       }},
  };
}

}  // namespace anneal::fake_cudnn
