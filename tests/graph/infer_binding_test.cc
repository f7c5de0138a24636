// Expressions say what inference says once sizes are known: each row is inferred with symbols, then
// again with numbers in their place, and the first answer, evaluated, must be the second.
#include <optional>

#include "anneal/core/error.h"
#include "anneal/tests/graph/infer_case.h"

namespace anneal {
namespace {

struct Row {
  std::string op;
  std::vector<std::string> inputs;
};

const Row kRows[] = {
    {"Conv strides=[2,3] pads_begin=[1,0] pads_end=[0,2] dilations=[1,2]",
     {"f32[N,3,H + 9,W + 9]", "f32[4,3,3,2]"}},
    {"ConvTranspose strides=[2] pads_begin=[1] pads_end=[0] dilations=[2] output_padding=[1]",
     {"f32[N,3,H + 1]", "f32[3,4,3]"}},
    {"MatMul transpose_b=true", {"f32[N,1,H,W]", "f32[7,H + 1,W]"}},
    {"Pool kernel=[3] strides=[2] pads_begin=[1] pads_end=[0] dilations=[1] ceil_mode=true",
     {"f32[1,1,H + 2]"}},
    {"Pool kernel=[2] strides=[3] pads_begin=[0] pads_end=[1] dilations=[1] ceil_mode=true",
     {"f32[1,1,H + 2]"}},
    {"Pool kernel=[3] strides=[3] pads_begin=[2] pads_end=[2] dilations=[2] ceil_mode=true",
     {"f32[1,1,H + 2]"}},
    {"Pool kernel=[2] strides=[2] pads_begin=[1] pads_end=[1] dilations=[3]", {"f32[1,1,W + 9]"}},
    {"Reshape", {"f32[N,H,W,6]", "i64{0,-1,2}"}},
    {"Reshape", {"f32[N,H,W,6]", "i64{N*H,-1}"}},
    {"Reshape", {"f32[N,H,W,6]", "i64{W,-1,3}"}},
    {"Slice", {"f32[H]", "i64{2}", "i64{-1}", "i64{0}", "i64{1}"}},
    {"Slice", {"f32[H]", "i64{-3}", "i64{9223372036854775807}", "i64{0}", "i64{2}"}},
    {"Slice", {"f32[H]", "i64{5}", "i64{-9223372036854775808}", "i64{0}", "i64{-2}"}},
    {"Slice", {"f32[H]", "i64{-1}", "i64{1}", "i64{0}", "i64{-3}"}},
    {"Slice", {"f32[H]", "i64{N}", "i64{W}", "i64{0}", "i64{1}"}},
    {"Slice", {"f32[H]", "i64{0}", "i64{N - 20}", "i64{0}", "i64{1}"}},
    {"Slice", {"i64{N,H,W,7}", "i64{1}", "i64{4}", "i64{0}", "i64{2}"}},
    {"Pad", {"f32[H,W]", "i64{1,N,2,0}"}},
    {"Tile", {"f32[H,3]", "i64{2,W}"}},
    {"Expand", {"f32[H,1]", "i64{1,W}"}},
    {"Concat axis=1", {"f32[N,H]", "f32[N,W]", "f32[N,3]"}},
    {"Range", {"i64[]{1}", "i64[]{H}", "i64[]{3}"}},
    {"Range", {"i64[]{W}", "i64[]{H}", "i64[]{-2}"}},
    {"Resize axes=[0,1] scales=[1.5,0.25]", {"f32[H,W]"}},
    {"Reduce kind=max", {"i64{N,H,W}", "i64{0}"}},
    {"Reduce kind=prod", {"i64{N,H,W}", "i64{0}"}},
    {"Pointwise program=\"(i64)->(i64) mod(sub($0,5i64),3i64)\"", {"i64{N,H,W}"}},
    {"Pointwise program=\"(i64)->(i64) div($0,3i64)\"", {"i64{N,H,W}"}},
    {"Pointwise program=\"(i64,i64)->(i64) select(lt($0,$1),$0,$1)\"",
     {"i64{N,H,W}", "i64{1,H + 1,2}"}},
    {"Pointwise program=\"(i64)->(i64,i64) max(abs(neg($0)),4i64), min($0,7i64)\"", {"i64{N,H,W}"}},
};

// The fact with numbers for symbols; unknown() stays.
Fact bound(const Fact& fact, const SizeTable& sizes,
           std::span<const std::optional<int64_t>> values) {
  const auto bind = [&](Size size) {
    return size.is_unknown() ? size : Size(sizes.evaluate(size, values));
  };
  Fact result = fact;
  for (int axis = 0; axis < fact.type.shape.rank(); ++axis)
    result.type.shape[axis] = bind(fact.type.shape[axis]);
  if (result.elements)
    for (Size& element : *result.elements) element = bind(element);
  return result;
}

void check_row(const Row& row, std::span<const std::optional<int64_t>> values, Bounds bounds) {
  SizeTable sizes;
  for (const char* name : {"N", "H", "W"}) sizes.set_bounds(sizes.symbol(name), bounds);
  InferRunner runner(sizes);
  std::vector<InferRunner::Input> inputs(row.inputs.size());
  std::vector<InferInput> symbolic, numbers;
  std::vector<Fact> facts(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    symbolic.push_back(runner.read(row.inputs[i], inputs[i], false));
    facts[i] = bound(inputs[i].fact, sizes, values);
    numbers.push_back({&facts[i], nullptr});
  }
  const Op op = op_from_text(row.op, sizes);
  const Facts expressions = infer(op, InferInputs(symbolic, sizes));
  Facts expected;
  try {
    expected = infer(op, InferInputs(numbers, sizes));
  } catch (const Error&) {
    return;  // these numbers do not fit: binding fails too
  }
  ASSERT_EQ(expressions.size(), expected.size());
  for (size_t k = 0; k < expected.size(); ++k) {
    const Fact fact = bound(expressions[k], sizes, values);
    for (int axis = 0; axis < fact.type.shape.rank(); ++axis) {
      EXPECT_TRUE(expected[k].type.shape[axis].known());
      if (!fact.type.shape[axis].is_unknown()) {
        EXPECT_EQ(fact.type.shape[axis].value(), expected[k].type.shape[axis].value());
      }
    }
    if (!fact.elements) continue;
    ASSERT_TRUE(expected[k].elements);
    for (size_t i = 0; i < fact.elements->size(); ++i) {
      if (!(*fact.elements)[i].is_unknown()) {
        EXPECT_EQ((*fact.elements)[i], (*expected[k].elements)[i]);
      }
    }
  }
}

TEST(InferBinding, ExpressionsHold) {
  for (const Row& row : kRows)
    for (int64_t n : {1, 7, 23})
      for (int64_t h : {1, 2, 5, 27})
        for (int64_t w : {1, 3, 8, 129}) {
          const std::optional<int64_t> values[] = {n, h, w};
          for (const Bounds& bounds : {Bounds{}, Bounds{1, 1, 129}}) {
            SCOPED_TRACE(row.op + " N=" + std::to_string(n) + " H=" + std::to_string(h) +
                         " W=" + std::to_string(w) + " min=" + std::to_string(bounds.min));
            check_row(row, values, bounds);
          }
        }
}

}  // namespace
}  // namespace anneal
