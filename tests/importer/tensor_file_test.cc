#include "anneal/importer/onnx/tensor_file.h"

#include <gmock/gmock.h>

#include "anneal/core/tensor.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using anneal_onnx::TensorProto;
using testing::ElementsAre;
using testing::HasSubstr;
using Proto = std::function<void(TensorProto&)>;

TensorProto tensor(int type, const std::vector<int64_t>& dims, const Proto& fill) {
  TensorProto proto;
  proto.set_name("t");
  proto.set_data_type(type);
  for (const int64_t dim : dims) proto.add_dims(dim);
  fill(proto);
  return proto;
}

Tensor load(const TensorProto& proto) {
  const auto bytes = bytes_of(proto);
  return load_tensor_proto(bytes, nullptr);
}

const auto kInts = [](TensorProto& proto) {
  for (const int value : {1, 0, 200}) proto.add_int32_data(value);
};

TEST(TensorFile, TypedFields) {
  const auto floats = load(tensor(TensorProto::FLOAT, {3}, [](TensorProto& proto) {
    for (const float value : {1.5F, -2.0F, 0.0F}) proto.add_float_data(value);
  }));
  EXPECT_EQ(floats.dtype(), DataType::kF32);
  EXPECT_THAT(floats.as<float>(), ElementsAre(1.5F, -2.0F, 0.0F));
  EXPECT_THAT(load(tensor(TensorProto::UINT8, {3}, kInts)).as<uint8_t>(), ElementsAre(1, 0, 200));
  EXPECT_THAT(load(tensor(TensorProto::INT8, {3}, kInts)).as<int8_t>(), ElementsAre(1, 0, -56));
  EXPECT_THAT(load(tensor(TensorProto::INT16, {3}, kInts)).as<int16_t>(), ElementsAre(1, 0, 200));
  EXPECT_THAT(load(tensor(TensorProto::UINT16, {3}, kInts)).as<uint16_t>(), ElementsAre(1, 0, 200));
  EXPECT_THAT(load(tensor(TensorProto::INT32, {3}, kInts)).as<int32_t>(), ElementsAre(1, 0, 200));
  EXPECT_THAT(load(tensor(TensorProto::BOOL, {3}, kInts)).as<uint8_t>(), ElementsAre(1, 0, 1));
  const auto half = load(tensor(TensorProto::FLOAT16, {1, 3}, kInts));
  EXPECT_EQ(half.dtype(), DataType::kF16);
  EXPECT_EQ(half.dims(), (Dims{1, 3}));
  EXPECT_THAT(half.as<uint16_t>(), ElementsAre(1, 0, 200));
  EXPECT_EQ(load(tensor(TensorProto::BFLOAT16, {3}, kInts)).dtype(), DataType::kBF16);
  EXPECT_THAT(load(tensor(TensorProto::UINT32, {1},
                          [](auto& proto) { proto.add_uint64_data(4'000'000'000); }))
                  .as<uint32_t>(),
              ElementsAre(4'000'000'000));
  EXPECT_THAT(
      load(tensor(TensorProto::UINT64, {1}, [](auto& proto) { proto.add_uint64_data(~0ULL); }))
          .as<uint64_t>(),
      ElementsAre(~0ULL));
  EXPECT_THAT(load(tensor(TensorProto::INT64, {}, [](auto& proto) { proto.add_int64_data(-7); }))
                  .as<int64_t>(),
              ElementsAre(-7));
  EXPECT_THAT(
      load(tensor(TensorProto::DOUBLE, {1}, [](auto& proto) { proto.add_double_data(0.1); }))
          .as<double>(),
      ElementsAre(0.1));
}

TEST(TensorFile, RawData) {
  const auto proto = tensor(TensorProto::INT16, {2}, [](auto& proto) {
    proto.set_raw_data(std::string("\x01\x00\xff\xff", 4));
  });
  std::string name;
  const auto bytes = bytes_of(proto);
  EXPECT_THAT(load_tensor_proto(bytes, &name).as<int16_t>(), ElementsAre(1, -1));
  EXPECT_EQ(name, "t");
  EXPECT_THAT(load(tensor(TensorProto::BOOL, {2},
                          [](auto& proto) { proto.set_raw_data(std::string("\x00\x07", 2)); }))
                  .as<uint8_t>(),
              ElementsAre(0, 1));
  EXPECT_EQ(load(tensor(TensorProto::FLOAT, {3, 0}, [](auto&) {})).count(), 0);
}

TEST(TensorFile, WrongTensors) {
  struct Case {
    TensorProto proto;
    const char* error;
  };
  const Proto none = [](auto&) {};
  const Case cases[] = {
      {tensor(TensorProto::COMPLEX128, {1}, none), "unsupported: the element type complex128"},
      {tensor(TensorProto::COMPLEX64, {1}, none), "unsupported: the element type complex64"},
      {tensor(TensorProto::STRING, {1}, none), "unsupported: a constant of strings"},
      {tensor(77, {1}, none), "unsupported: the element type number 77"},
      {tensor(0, {1}, none), "invalid_model: the element type is undefined"},
      {tensor(TensorProto::FLOAT, {2}, none), "0 elements in float_data, but 2 in shape [2]"},
      {tensor(TensorProto::INT8, {2}, kInts), "3 elements in int32_data, but 2 in shape [2]"},
      {tensor(TensorProto::FLOAT, {-1}, none), "a negative size: -1"},
      {tensor(TensorProto::FLOAT, {1LL << 40, 1LL << 40}, none), "more than 2^64 elements"},
      {tensor(TensorProto::FLOAT, {1LL << 62}, [](auto& proto) { proto.set_raw_data("abcd"); }),
       "more than 2^64 bytes"},
      {tensor(TensorProto::FLOAT, {1LL << 40}, [](auto& proto) { proto.set_raw_data("abcd"); }),
       "4 bytes of raw data, but shape [1099511627776] of f32 takes 4398046511104"},
      {tensor(TensorProto::FLOAT, {1, 1, 1, 1, 1, 1, 1, 1, 1}, none), "more than 8 axes"},
      {tensor(TensorProto::UINT8, {1}, [](auto& proto) { proto.add_int32_data(256); }),
       "256 does not fit in u8"},
      {tensor(TensorProto::FLOAT, {1},
              [](auto& proto) {
                proto.set_data_location(TensorProto::EXTERNAL);
                auto* entry = proto.add_external_data();
                entry->set_key("location");
                entry->set_value("/etc/passwd");
              }),
       "external data \"/etc/passwd\": an absolute path is refused"},
  };
  for (const Case& wrong : cases)
    EXPECT_THAT(error_of([&] { load(wrong.proto); }), HasSubstr(wrong.error));
  const auto noise = bytes_of("\xff\xff\xff\xff no tensor");
  EXPECT_THAT(error_of([&] { load_tensor_proto(noise, nullptr); }),
              HasSubstr("invalid_model: not an ONNX tensor"));
  EXPECT_THAT(error_of([&] { load_tensor_proto({}, nullptr); }), HasSubstr("not an ONNX tensor"));
}

}  // namespace
}  // namespace anneal
