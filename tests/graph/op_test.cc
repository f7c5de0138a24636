// What is derived from the fields of ops: names, text, bytes, hashes.
#include "anneal/graph/op/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/core/fields.h"
#include "anneal/graph/op/op_names.h"

namespace anneal {
namespace {

using testing::HasSubstr;

std::vector<std::byte> bytes_of(const Op& op) {
  ByteWriter to;
  save(to, op);
  return to.take();
}

Op op_from_bytes(std::span<const std::byte> bytes) {
  ByteReader from(bytes, "op");
  Op op = load_op(from);
  from.expect_end();
  return op;
}

// Gives each field a value that is not its default.
struct Changer {
  SizeTable& sizes;
  void operator()(const char*, bool& value) const { value = !value; }
  void operator()(const char*, int64_t& value) const { value += 7; }
  void operator()(const char*, float& value) const { value += 0.1f; }
  void operator()(const char*, DataType& value) const { value = DataType::kI16; }
  void operator()(const char*, Program& value) const {
    value = parse_program("(f32,f16)->(f16) %0=exp($0); round_f16(div(%0,add($1,%0)))");
  }
  void operator()(const char*, std::string& value) const { value += "a \"b\\ c]"; }
  void operator()(const char*, std::vector<CustomAttribute>& value) const {
    const float numbers[] = {0.5f, -0.0f};
    value = {{"i", std::vector<int64_t>{1, INT64_MIN}},
             {"none", std::vector<float>{}},
             {"f, \"]", std::vector<float>{0.1f}},
             {"s", std::vector<std::string>{"", "x,\"y\\", "a b"}},
             {"t", Tensor::of<float>(DataType::kF32, {2, 1}, std::span(numbers))}};
  }
  template <NamedEnum E>
  void operator()(const char*, E& value) const {
    value = value == EnumNames<E>::last ? E{} : EnumNames<E>::last;
  }
  void operator()(const char*, std::vector<int64_t>& value) const { value = {1, -2, INT64_MIN}; }
  void operator()(const char*, std::vector<float>& value) const { value = {0.1f, -0.0f, 1e-45f}; }
  void operator()(const char*, std::vector<Size>& value) const {
    const Size n = sizes.symbol("N");
    value = {3, sizes.floor_div(sizes.add(n, 1), 2), sizes.min(n, sizes.symbol("a, \"b]")), n};
  }
};

// Every op: with its defaults, with one field changed, with all fields changed.
std::vector<Op> all_ops(SizeTable& sizes) {
  std::vector<Op> ops;
  const auto add = [&]<class T>(const T& op) {
    ops.push_back(op);
    T changed = op;
    T::fields(changed, Changer{sizes});
    if (field_count<T>() != 0) ops.push_back(changed);
    for (size_t only = 0; field_count<T>() > 1 && only < field_count<T>(); ++only) {
      T one = op;
      size_t i = 0;
      T::fields(one, [&](const char* name, auto& value) {
        if (i++ == only) Changer{sizes}(name, value);
      });
      ops.push_back(one);
    }
  };
#define X(T) add(T());
  ANNEAL_FOR_EACH_OP(X)
#undef X
  return ops;
}

TEST(Op, NamesEveryMember) {
  // The definition of Custom is found by name.
#define X(T) EXPECT_EQ(arity<T>(), field_count<T>() + (std::is_same_v<T, Custom> ? 1 : 0)) << #T;
  ANNEAL_FOR_EACH_OP(X)
#undef X
}

TEST(Op, HasAName) {
  EXPECT_EQ(to_string(Op(Softmax{})), "Softmax");
  EXPECT_EQ(to_string(Op()), "erased");
  EXPECT_EQ(op_name(op_index<GatherND>), "GatherND");
  EXPECT_EQ(op_named("Slice"), Op(Slice{}));
  EXPECT_EQ(op_named("erased"), Op());
  EXPECT_EQ(op_named("slice"), Op());
  EXPECT_THROW(op_name(std::variant_size_v<Op>), Error);
}

TEST(Op, RoundTripsAsTextAndAsBytes) {
  SizeTable sizes;
  std::set<uint64_t> hashes;
  const std::vector<Op> ops = all_ops(sizes);
  for (const Op& op : ops) {
    const std::string text = to_string(op, sizes);
    EXPECT_EQ(op_from_text(text, sizes), op) << text;
    EXPECT_EQ(to_string(op_from_text(text, sizes), sizes), text);
    EXPECT_EQ(op_from_bytes(bytes_of(op)), op) << text;
    EXPECT_EQ(hash(op_from_bytes(bytes_of(op))), hash(op)) << text;
    hashes.insert(hash(op));
  }
  EXPECT_EQ(hashes.size(), ops.size());
}

struct TextCase {
  Op op;
  const char* text;
};

TEST(Op, IsPrintedWithoutItsDefaults) {
  SizeTable sizes;
  const Size n = sizes.symbol("N");
  const TextCase cases[] = {
      {Softmax{}, "Softmax"},
      {Softmax{.axis = -1, .log = true}, "Softmax axis=-1 log=true"},
      {Slice{}, "Slice"},
      {Conv{.strides = {1, 2}, .groups = 4}, "Conv strides=[1,2] groups=4"},
      {Pool{.kind = PoolKind::kAverage}, "Pool kind=average"},
      {Normalize{.axes = {1}, .epsilon = 1e-6f}, "Normalize axes=[1] epsilon=1e-06"},
      {Normalize{.epsilon = INFINITY}, "Normalize epsilon=inf"},
      {Resize{.coordinates = ResizeCoordinates::kHalfPixelSymmetric,
              .scales = {0.5f, 2},
              .extrapolation_value = -0.0f},
       "Resize coordinates=half_pixel_symmetric scales=[0.5,2] extrapolation_value=-0"},
      {Quantize{.dtype = DataType::kI8}, "Quantize dtype=i8"},
      {SizeTensor{.elements = {n, sizes.add(sizes.mul(2, n), 1), 3}},
       "SizeTensor elements=[N,2*N + 1,3]"},
      {Pointwise{parse_program("(f32,f32)->(f32) add($0,$1)")},
       "Pointwise program=\"(f32,f32)->(f32) add($0,$1)\""},
      {Op(), "erased"},
  };
  for (const auto& [op, text] : cases) EXPECT_EQ(to_string(op, sizes), text);
}

TEST(Op, IsReadWithFieldsInAnyOrder) {
  SizeTable sizes;
  EXPECT_EQ(op_from_text("  Softmax   log=true  axis=2 ", sizes),
            Op(Softmax{.axis = 2, .log = true}));
  EXPECT_EQ(op_from_text("Softmax axis=0", sizes), Op(Softmax{}));
  EXPECT_EQ(op_from_text("Conv pads_begin=[]", sizes), Op(Conv{}));
  EXPECT_EQ(op_from_text("SizeTensor elements=[min(A, B),C]", sizes),
            Op(SizeTensor{
                .elements = {sizes.min(sizes.symbol("A"), sizes.symbol("B")), sizes.symbol("C")}}));
}

TEST(Op, WrongTextIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "there is no op \"\""},
      {"softmax", "there is no op \"softmax\""},
      {"erased", "there is no op \"erased\""},
      {"Softmax axes=1", "Softmax: there is no field \"axes\""},
      {"Slice axis=1", "Slice: there is no field \"axis\""},
      {"Softmax axis", "Softmax: axis is not FIELD=VALUE"},
      {"Softmax axis=", "Softmax: field axis:  is not an integer of 64 bits"},
      {"Softmax axis=1.5", "1.5 is not an integer"},
      {"Softmax axis=9223372036854775808", "is not an integer of 64 bits"},
      {"Softmax axis=1 axis=1", "the field axis occurs twice"},
      {"Softmax log=1", "1 is not true or false"},
      {"Normalize epsilon=small", "small is not an f32"},
      {"Normalize epsilon=1e99", "1e99 is not an f32"},
      {"Pool kind=avg", "avg is not one of max average lp"},
      {"Quantize dtype=int8", "int8 is not a data type"},
      {"Conv strides=1", "1 is not a list"},
      {"Conv strides=[1", "[1 is not a list"},
      {"Conv strides=]", "] is not a list"},
      {"Conv strides=[1,]", " is not an integer"},
      {"Conv strides=[1,,2]", " is not an integer"},
      {"Conv strides=[a]", "a is not an integer"},
      {"SizeTensor elements=[1+]", "size \"1+\""},
      {"SizeTensor elements=[\"a]", "field elements: size"},
      {"Pointwise program=x", "x is not in quotes"},
      {"Pointwise program=\"", "is not in quotes"},
      {"Pointwise program=\"(f32)->(f32) exp($1)\"", "field program: program, column"},
  };
  for (const auto& [text, why] : cases) {
    SizeTable sizes;
    try {
      op_from_text(text, sizes);
      ADD_FAILURE() << text << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }
}

class Bytes {
 public:
  Bytes text(std::string_view value) && { return to_.text(value), std::move(*this); }
  template <class T>
  Bytes number(T value) && {
    return to_.number(value), std::move(*this);
  }
  std::vector<std::byte> take() && { return to_.take(); }

 private:
  ByteWriter to_;
};

TEST(Op, OldBytesLackAFieldAndNewOnesAreRefusedByName) {
  EXPECT_EQ(op_from_bytes(Bytes().text("Softmax").number(uint32_t{0}).take()), Op(Softmax{}));
  EXPECT_EQ(op_from_bytes(
                Bytes().text("Softmax").number(uint32_t{1}).text("axis").number(int64_t{3}).take()),
            Op(Softmax{.axis = 3}));

  const auto expect_refusal = [](std::vector<std::byte> bytes, const char* why) {
    try {
      op_from_bytes(bytes);
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan);
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  const auto one = [](const char* op, const char* field) {
    return Bytes().text(op).number(uint32_t{1}).text(field);
  };
  expect_refusal({}, "4 bytes wanted");
  expect_refusal(Bytes().text("Softsign").number(uint32_t{0}).take(),
                 "the unknown op \"Softsign\"");
  expect_refusal(Bytes().text("\n\x80").number(uint32_t{0}).take(), "the unknown op \"??\"");
  expect_refusal(Bytes().text("erased").number(uint32_t{0}).take(), "the unknown op \"erased\"");
  expect_refusal(one("Softmax", "base").number(int64_t{3}).take(),
                 "Softmax with the unknown field \"base\"");
  expect_refusal(Bytes()
                     .text("Softmax")
                     .number(uint32_t{2})
                     .text("axis")
                     .number(int64_t{3})
                     .text("axis")
                     .number(int64_t{3})
                     .take(),
                 "Softmax with two fields \"axis\"");
  expect_refusal(Bytes().text("Softmax").number(~uint32_t{0}).take(), "a count of 4294967295");
  expect_refusal(one("Softmax", "log").number(uint8_t{2}).take(), "neither 0 nor 1");
  expect_refusal(one("Pool", "kind").number(uint8_t{3}).take(), "the enumerator 3");
  expect_refusal(one("Quantize", "dtype").number(uint8_t{0}).take(), "the data type 0");
  expect_refusal(one("Quantize", "dtype").number(uint8_t{15}).take(), "the data type 15");
  expect_refusal(one("Conv", "strides").number(uint32_t{2}).number(int64_t{1}).take(),
                 "a count of 2");
  for (const uint32_t id : {~0u, ~0u - 1})
    expect_refusal(
        one("SizeTensor", "elements").number(uint32_t{1}).number(uint8_t{0}).number(id).take(),
        "a size that is no expression");
}

TEST(Op, AnErasedOneIsNotSaved) { EXPECT_THROW(bytes_of(Op()), Error); }

// Of every op: each truncation, and bits turned anywhere. The answer is an Error, or an op that
// is saved and loaded again as itself.
TEST(Op, DamagedBytesGiveAnErrorOrAnOp) {
  SizeTable sizes;
  std::mt19937 random(7);
  const auto load = [](std::span<const std::byte> bytes) {
    try {
      ByteReader from(bytes, "op");
      const Op op = load_op(from);
      const std::vector<std::byte> again = bytes_of(op);
      EXPECT_EQ(bytes_of(op_from_bytes(again)), again);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan) << error.what();
    }
  };
  for (const Op& op : all_ops(sizes)) {
    const std::vector<std::byte> bytes = bytes_of(op);
    for (size_t size = 0; size < bytes.size(); ++size) {
      ByteReader from(std::span<const std::byte>(bytes).first(size), "op");
      EXPECT_THROW(load_op(from), Error);
    }
    for (int i = 0; i < 200; ++i) {
      std::vector<std::byte> damaged = bytes;
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
        damaged[random() % damaged.size()] ^= static_cast<std::byte>(1u << random() % 8);
      load(damaged);
    }
  }
}

// Characters of texts that are right, in an order that is wrong.
TEST(Op, DamagedTextGivesAnErrorOrAnOp) {
  SizeTable sizes;
  std::mt19937 random(8);
  constexpr std::string_view kCharacters = "[](),=\"\\$% 0123456789abcdef-+.;>";
  for (const Op& op : all_ops(sizes)) {
    const std::string text = to_string(op, sizes);
    for (int i = 0; i < 200; ++i) {
      std::string damaged = text;
      for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
        const size_t at = random() % (damaged.size() + 1);
        const char c = kCharacters[random() % kCharacters.size()];
        if (random() % 2 == 0 || at == damaged.size()) {
          damaged.insert(at, 1, c);
        } else {
          damaged[at] = c;
        }
      }
      try {
        SizeTable other;
        const Op read = op_from_text(damaged, other);
        EXPECT_EQ(to_string(op_from_text(to_string(read, other), other), other),
                  to_string(read, other));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what() << "\n" << damaged;
      }
    }
  }
}

}  // namespace
}  // namespace anneal
