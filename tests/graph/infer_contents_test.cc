// What is known of the contents of small tensors, through every op that carries it.
#include "anneal/tests/graph/infer_case.h"

namespace anneal {
namespace {

std::string program(const std::string& text) { return "Pointwise program=\"" + text + "\""; }

TEST(InferContents, Movement) {
  check_cases({
      {"ShapeOf start=0 end=3", {"f32[N,3,H]"}, "i64[3]{N,3,H}"},
      {"ShapeOf start=1 end=2", {"f32[N,3,H]"}, "i64[1]{3}"},
      {"ShapeOf start=0 end=0", {"f32[N]"}, "i64[0]{}"},
      {"ShapeOf start=2 end=4", {"f32[N,3,H]"}, "error: axes 2 to 4 of rank 3"},
      {"ShapeOf start=2 end=1", {"f32[N,3,H]"}, "error: axes 2 to 1"},
      {"SizeTensor elements=[N,2*H + 1,4]", {}, "i64[3]{N,2*H + 1,4}"},
      {"SizeTensor elements=[N] scalar=true", {}, "i64[]{N}"},
      {"SizeTensor elements=[N,M] scalar=true", {}, "error: a scalar of 2"},
      {"Gather", {"i64{N,3,H}", "i64[]{-1}"}, "i64[]{H}"},
      {"Gather", {"i64{N,3,H}", "i64{2,0}"}, "i64[2]{H,N}"},
      {"Gather axis=1", {"i64[2,2]{1,2,N,4}", "i64{1}"}, "i64[2,1]{2,4}"},
      {"Gather", {"i64{N,3}", "i64[1]"}, "i64[1]"},
      {"Slice", {"i64{N,3,H,W}", "i64{2}", "i64{4}", "i64{0}", "i64{1}"}, "i64[2]{H,W}"},
      {"Slice", {"i64{N,3,H,W}", "i64{-1}", "i64{-9}", "i64{0}", "i64{-2}"}, "i64[2]{W,3}"},
      {"Slice", {"i64{N,3}", "i64[1]", "i64{4}", "i64{0}", "i64{1}"}, "i64[?]"},
      {"Concat", {"i64{N}", "i64[1]", "i64{3,H}"}, "i64[4]{N,?,3,H}"},
      {"Concat axis=1", {"i64[2,1]{1,2}", "i64[2,2]{3,4,5,6}"}, "i64[2,3]{1,3,4,2,5,6}"},
      {"Concat", {"i64[1]", "i64[1]"}, "i64[2]"},
      {"Reshape", {"i64[]{N}", "i64{-1}"}, "i64[1]{N}"},
      {"Reshape", {"i64{N,2,3,4}", "i64{2,2}"}, "i64[2,2]{N,2,3,4}"},
      {"Transpose permutation=[1,0]", {"i64[2,2]{N,2,3,4}"}, "i64[2,2]{N,3,2,4}"},
      {"Expand", {"i64[]{N}", "i64{3}"}, "i64[3]{N,N,N}"},
      {"Expand", {"i64[2,1]{1,N}", "i64{2}"}, "i64[2,2]{1,1,N,N}"},
      {"Expand", {"i64[]{1}", "i64{N}"}, "i64[N]"},
      {"Expand", {"i64[]{1}", "i64{2000}"}, "i64[2000]"},
      {"Tile", {"i64{N,2}", "i64{2}"}, "i64[4]{N,2,N,2}"},
      {"Range", {"i64[]{0}", "i64[]{4}", "i64[]{1}"}, "i64[4]{0,1,2,3}"},
      {"Range", {"i64[]{N}", "i64[]{N + 2}", "i64[]{1}"}, "i64[2]{N,N + 1}"},
      {"Range", {"i32[]{5}", "i32[]{0}", "i32[]{-2}"}, "i32[3]{5,3,1}"},
      {"Range", {"i64[]{0}", "i64[]{N}", "i64[]{1}"}, "i64[N]"},
      {"Range", {"i64[]{0}", "i64[]{N}", "i64[]{2}"}, "i64[(N + 1)//2]"},
      {"Range", {"i64[]{5}", "i64[]{0}", "i64[]{1}"}, "i64[0]{}"},
      {"Range", {"i64[]", "i64[]{0}", "i64[]{1}"}, "i64[?]"},
      {"Range", {"f32[]{0}", "f32[]{1}", "f32[]{0.3}"}, "f32[4]"},
      {"Range", {"f32[]{0}", "f32[]", "f32[]{0.3}"}, "f32[?]"},
      {"Range", {"i64[]{0}", "i64[]{9}", "i64[]{0}"}, "error: in steps of 0"},
      {"Range", {"f32[]{0}", "f32[]{9.5}", "f32[]{0}"}, "error: "},
      {"Range", {"i64[]{0}", "i32[]{9}", "i64[]{1}"}, "error: not i64"},
      {"Range", {"i64[2]", "i64[]", "i64[]"}, "error: no scalar"},
      {"Range", {"bool[]", "bool[]", "bool[]"}, "error: a range of bool"},
  });
}

TEST(InferContents, Reductions) {
  check_cases({
      {"Require", {"bool[1]{1}"}, "bool[1]{1}"},
      {"Reduce", {"i64{N,3,4}", "i64{0}"}, "i64[1]{N + 7}"},
      {"Reduce kind=prod keepdims=false", {"i64{N,3,4}", "i64{0}"}, "i64[]{12*N}"},
      {"Reduce kind=max", {"i64{2,9,4}", "i64{0}"}, "i64[1]{9}"},
      {"Reduce map=\"(i64,i64)->(i64) add($0,$1)\"",
       {"i64{2,N}", "i64{0}", "i64[]{3}"},
       "i64[1]{N + 8}"},
      {"Reduce kind=min", {"i64{2,9,N}", "i64{0}"}, "i64[1]{min(N, 2)}"},
      {"Reduce keepdims=false", {"i64[2,3]{1,2,3,4,5,N}", "i64{1}"}, "i64[2]{6,N + 9}"},
      {"Reduce keepdims=false", {"i64[2,3]{1,2,3,4,5,N}", "i64{0}"}, "i64[3]{5,7,N + 3}"},
      {"Reduce kind=prod", {"i32{65536,65536}", "i64{0}"}, "i32[1]"},  // wraps
      {"Reduce kind=prod", {"i64{4611686018427387904,4}", "i64{0}"}, "i64[1]"},
      {"Reduce kind=mean", {"i64{2,9,4}", "i64{0}"}, "i64[1]"},
      {"Cumulative", {"i64{N,3,4}", "i64[]{0}"}, "i64[3]{N,N + 3,N + 7}"},
      {"Cumulative exclusive=true reverse=true", {"i64{1,2,3}", "i64[]{0}"}, "i64[3]{5,3,0}"},
      {"Cumulative kind=prod", {"i64{2,3,4}", "i64[]{-1}"}, "i64[3]{2,6,24}"},
  });
}

TEST(InferContents, Arithmetic) {
  const auto binary = [](const std::string& opcode) {
    return program("(i64,i64)->(i64) " + opcode + "($0,$1)");
  };
  const auto compare = [](const std::string& opcode) {
    return program("(i64,i64)->(bool) " + opcode + "($0,$1)");
  };
  check_cases({
      {binary("add"), {"i64{N,2}", "i64[]{1}"}, "i64[2]{N + 1,3}"},
      {binary("sub"), {"i64{N,2}", "i64{N,7}"}, "i64[2]{0,-5}"},
      {binary("mul"), {"i64[2,1]{N,2}", "i64{1,H}"}, "i64[2,2]{N,N*H,2,2*H}"},
      {binary("div"), {"i64{N,-7,7}", "i64[]{2}"}, "i64[3]{N//2,-3,3}"},
      {binary("div"), {"i64{N - 5}", "i64{2}"}, "i64[1]"},  // may be negative
      {binary("div"), {"i64{8}", "i64{N}"}, "i64[1]"},      // may be 0
      {binary("div"), {"i64{8}", "i64{0}"}, "i64[1]{0}"},
      {binary("mod"), {"i64{N,-7}", "i64[]{2}"}, "i64[2]{N - 2*(N//2),1}"},
      {binary("rem"), {"i64{-7,7}", "i64[]{2}"}, "i64[2]{-1,1}"},
      {binary("min"), {"i64{N,2}", "i64[]{4}"}, "i64[2]{min(N, 4),2}"},
      {binary("max"), {"i64{N,2}", "i64[]{0}"}, "i64[2]{N,2}"},
      {binary("add"), {"i64{N,?}", "i64[]{1}"}, "i64[2]{N + 1,?}"},
      {binary("add"), {"i64{9223372036854775807}", "i64{1}"}, "i64[1]{-9223372036854775808}"},
      {program("(i64)->(i64) neg($0)"), {"i64{N,2}"}, "i64[2]{-N,-2}"},
      {program("(i64)->(i64) abs($0)"), {"i64{N,-2}"}, "i64[2]{N,2}"},
      {program("(i64)->(i32) i32($0)"), {"i64{N,5000000000}"}, "i32[2]{N,705032704}"},
      {program("(i64)->(i32) i32($0)"), {"i64{2*N}"}, "i32[1]"},  // may not fit
      {program("(i64)->(bool) bool($0)"), {"i64{N + 1,0,N}"}, "bool[3]{1,0,min(N, 1)}"},
      {compare("eq"),
       {"i64{N,N,N,3}", "i64{N,-1,7,3}"},
       "bool[4]{1,0,-min(max(-N + 7, N - 7, 0), 1) + 1,1}"},
      {compare("lt"), {"i64{N,N,N}", "i64{N + 1,0,7}"}, "bool[3]{1,0,min(max(-N + 7, 0), 1)}"},
      {compare("le"), {"i64{N,N + 1,N}", "i64{N,0,7}"}, "bool[3]{1,0,-min(max(N - 7, 0), 1) + 1}"},
      // Where(Equal(shape, -1), ones, shape), as exporters write Expand.
      {program("(i64,i64)->(i64) select(eq($0,-1i64),$1,$0)"),
       {"i64{N,-1,3}", "i64[]{1}"},
       "i64[3]{N,1,3}"},
      // A size clipped, and chosen between two.
      {program("(i64)->(i64) min(max($0,2i64),9i64)"), {"i64{N}"}, "i64[1]{min(max(N, 2), 9)}"},
      {program("(i64,i64)->(i64) select(lt($0,$1),$0,$1)"),
       {"i64{N}", "i64{7}"},
       "i64[1]{N*min(max(-N + 7, 0), 1) - 7*min(max(-N + 7, 0), 1) + 7}"},
      {program("(bool,bool)->(bool) and($0,$1)"), {"bool{0,?,1}", "bool{?,1,1}"}, "bool[3]{0,?,1}"},
      {program("(bool,bool)->(bool) or($0,$1)"), {"bool{1,?}", "bool{?,0}"}, "bool[2]{1,?}"},
      {program("(i64)->(i64) add(index(0),$0)"), {"i64{N,2}"}, "i64[2]{N,3}"},
      {program("(i64,i64)->(i64) add($0,$1)"), {"i64[1]", "i64{2}"}, "i64[1]"},
  });
}

TEST(InferContents, Floats) {
  check_cases({
      {program("(i64)->(f32) f32($0)"), {"i64{7,224}"}, "f32[2]{7,224}"},
      {program("(i64)->(f32) f32($0)"), {"i64{16777217,N}"}, "f32[2]{16777216,f32.convert(N)}"},
      {program("(f32,f32)->(f32) mul($0,$1)"),
       {"f32{7,8}", "f32[]{0.5}"},
       "f32[2]{f32.constant(3.5),4}"},
      {program("(f32)->(f32) floor(mul($0,0.5f32))"), {"f32{7,8}"}, "f32[2]{3,4}"},
      {program("(f32)->(i64) i64(floor(mul($0,0.5f32)))"), {"f32{7,8}"}, "i64[2]{3,4}"},
      {program("(i64)->(i64) i64(floor(mul(f64($0),2f64)))"), {"i64{N}"}, "i64[1]{2*N}"},
      {program("(f32)->(f32) neg($0)"), {"f32{0,3}"}, "f32[2]{f32.constant(-0),-3}"},
      {program("(i64)->(i64) i64(ceil(div(f32($0),320f32)))"),
       {"i64{N}"},
       "i64[1]{trunc(f32.ceil(f32.div(f32.convert(N), 320)))}"},
      {program("(i64)->(i32) i32(mul(f64($0),0.1f64))"),
       {"i64{N}"},
       "i32[1]{trunc(f64.mul(N, f64.constant(0.1)))}"},
      {"Reduce kind=min", {"f32{7,N,8}", "i64{0}"}, "f32[1]{min(N, 7)}"},
  });
}

}  // namespace
}  // namespace anneal
