// The traits of each op, in one place: the properties that passes, the builder and the run time
// need beyond the shape rule and the kernels. A new op gets an entry here. An op without an entry,
// or with a trait left out, does not compile, and the compiler names the op and each trait.
#pragma once
#include <cstdint>
#include <optional>

#include "anneal/graph/op/infer.h"
#include "anneal/graph/op/op.h"

namespace anneal {

// Inputs of an op, by number. Each may have a member beyond what an op takes.
class InputSet {
 public:
  constexpr InputSet() = default;
  constexpr bool contains(size_t input) const { return bits_ >> (input < 63 ? input : 63) & 1; }
  constexpr InputSet operator|(InputSet other) const { return InputSet(bits_ | other.bits_); }

 private:
  constexpr explicit InputSet(uint64_t bits) : bits_(bits) {}
  friend constexpr InputSet only(auto... input);
  friend constexpr InputSet inputs_from(int first);
  uint64_t bits_ = 0;  // the last one stands for all further inputs
};
constexpr InputSet only(auto... input) { return InputSet(((uint64_t{1} << input) | ... | 0)); }
constexpr InputSet inputs_from(int first) { return InputSet(~uint64_t{0} << first); }
inline constexpr InputSet kNoInputs = only(), kAllInputs = inputs_from(0);

// Whether the op takes a program that its kernels apply to each element before the store.
enum class EpilogueRule : uint8_t {
  kNever,
  kAlways,     // whatever its element type is
  kForFloats,  // where its output is f16, bf16 or f32
  // For floats, and only if the targets have a kernel for it. Other kernels of the op are a plain
  // copy of elements, or take no program on some target.
  kIfTargetsAgree
};

// How the op meets 16-bit values.
enum class HalfRole : uint8_t {
  kProduct,  // its operands are of one float type, and it adds up in f32
  kReads,    // takes each of its operands as it is stored, and computes in f32
  kMoves,    // moves elements without change
  kFixed     // reads and gives f32 only
};

// Which of its values may lie in the memory of another.
enum class ViewRule : uint8_t {
  kNone,
  kOfInput,       // its output in input 0, where strides can say which elements it takes
  kHoldsOperands  // its inputs in its output
};

// Whether a transpose before the op may move behind it (optimizer/passes/push_transpose.cc).
enum class TransposeRule : uint8_t { kStays, kPasses };

// Whether each row of its outputs follows from the same row of its inputs, a row being an index of
// one axis: whether a batch may be run in parts, or opened (graph/op/batch_rows.cc).
enum class BatchRule : uint8_t {
  kMixesRows,
  kFirstInput,  // if only input 0 has rows, and its fields do not name their axis
  kBroadcast,   // if all inputs line up by broadcasting, and its fields do not name their axis
  kOwn          // by a rule for this op
};

// Everything is given for each op.
struct OpTraits {
  std::optional<Arity> arity;  // the most that its fields may allow: see input_arity()
  // Inputs that decide shapes, so that shape inference reads them: they lie on the host, whatever
  // device runs the op.
  std::optional<InputSet> host;
  // Inputs that share the element type of the op's data.
  std::optional<InputSet> data;
  // Inputs that the op's program reads, if it is not empty (program_of()): then they are no data.
  std::optional<InputSet> program;
  std::optional<EpilogueRule> epilogue;
  std::optional<HalfRole> half;
  std::optional<ViewRule> view;
  std::optional<TransposeRule> transpose;
  std::optional<BatchRule> batch;
};

inline constexpr int kMany = 1 << 20;

template <class T>
inline constexpr OpTraits op_traits = {};

// clang-format off
template <>
inline constexpr OpTraits op_traits<Pointwise> = {
    .arity = Arity{1, kMany}, .host = kNoInputs, .data = kNoInputs, .program = kAllInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kReads, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kBroadcast};
template <>
inline constexpr OpTraits op_traits<Conv> = {
    .arity = Arity{2, 4}, .host = kNoInputs, .data = only(0, 1), .program = kNoInputs,
    .epilogue = EpilogueRule::kAlways, .half = HalfRole::kProduct, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<ConvTranspose> = {
    .arity = Arity{2, 2}, .host = kNoInputs, .data = only(0, 1), .program = kNoInputs,
    .epilogue = EpilogueRule::kAlways, .half = HalfRole::kProduct, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<MatMul> = {
    .arity = Arity{2, 5}, .host = kNoInputs, .data = only(0, 1), .program = kNoInputs,
    .epilogue = EpilogueRule::kAlways, .half = HalfRole::kProduct, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Pool> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kForFloats, .half = HalfRole::kReads, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Attention> = {
    .arity = Arity{3, kMany}, .host = kNoInputs, .data = only(0, 1, 2), .program = inputs_from(3),
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kProduct, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kBroadcast};
template <>
inline constexpr OpTraits op_traits<Softmax> = {
    .arity = Arity{1, kMany}, .host = kNoInputs, .data = only(0), .program = kAllInputs,
    .epilogue = EpilogueRule::kForFloats, .half = HalfRole::kReads, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kBroadcast};
template <>
inline constexpr OpTraits op_traits<Normalize> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kForFloats, .half = HalfRole::kReads, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<Reduce> = {
    .arity = Arity{2, kMany}, .host = only(1), .data = only(0), .program = only(0) | inputs_from(2),
    .epilogue = EpilogueRule::kForFloats, .half = HalfRole::kReads, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<ArgReduce> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Cumulative> = {
    .arity = Arity{2, 2}, .host = only(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<TopK> = {
    .arity = Arity{2, 2}, .host = only(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Reshape> = {
    .arity = Arity{2, 2}, .host = only(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kMoves, .view = ViewRule::kOfInput,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Transpose> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kMoves, .view = ViewRule::kOfInput,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Concat> = {
    .arity = Arity{1, kMany}, .host = kNoInputs, .data = kAllInputs, .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kMoves, .view = ViewRule::kHoldsOperands,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kBroadcast};
template <>
inline constexpr OpTraits op_traits<Slice> = {
    .arity = Arity{5, 5}, .host = inputs_from(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kMoves, .view = ViewRule::kOfInput,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Pad> = {
    .arity = Arity{2, 3}, .host = only(1), .data = only(0, 2), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Expand> = {
    .arity = Arity{2, 2}, .host = only(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Tile> = {
    .arity = Arity{2, 2}, .host = only(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Gather> = {
    .arity = Arity{2, 2}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<GatherElements> = {
    .arity = Arity{2, 2}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<GatherND> = {
    .arity = Arity{2, 2}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<ScatterElements> = {
    .arity = Arity{3, 3}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<ScatterND> = {
    .arity = Arity{3, 3}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<ShapeOf> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<SizeTensor> = {
    .arity = Arity{0, 0}, .host = kNoInputs, .data = kNoInputs, .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Range> = {
    .arity = Arity{3, 3}, .host = kAllInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Resize> = {
    .arity = Arity{1, 4}, .host = inputs_from(1), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kForFloats, .half = HalfRole::kReads, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<Quantize> = {
    .arity = Arity{2, 3}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<Dequantize> = {
    .arity = Arity{2, 3}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kPasses, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<GridSample> = {
    .arity = Arity{2, 2}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<RoiAlign> = {
    .arity = Arity{3, 3}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kIfTargetsAgree, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<NonZero> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Unique> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<NonMaxSuppression> = {
    .arity = Arity{2, 5}, .host = inputs_from(2), .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<ReverseSequence> = {
    .arity = Arity{2, 2}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kMoves, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<DecisionTrees> = {
    .arity = Arity{5, 5}, .host = kNoInputs, .data = only(0, 2), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kFirstInput};
template <>
inline constexpr OpTraits op_traits<BitCast> = {
    .arity = Arity{1, 1}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Require> = {
    .arity = Arity{1, 3}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Recurrent> = {
    .arity = Arity{3, 8}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<LinearAttention> = {
    .arity = Arity{3, 6}, .host = kNoInputs, .data = kAllInputs, .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<Custom> = {
    .arity = Arity{0, kMany}, .host = kNoInputs, .data = kNoInputs, .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kOwn};
template <>
inline constexpr OpTraits op_traits<If> = {
    .arity = Arity{1, kMany}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Loop> = {
    .arity = Arity{2, kMany}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
template <>
inline constexpr OpTraits op_traits<Scan> = {
    .arity = Arity{1, kMany}, .host = kNoInputs, .data = only(0), .program = kNoInputs,
    .epilogue = EpilogueRule::kNever, .half = HalfRole::kFixed, .view = ViewRule::kNone,
    .transpose = TransposeRule::kStays, .batch = BatchRule::kMixesRows};
// clang-format on

const OpTraits& traits_of(const Op& op);  // of an erased layer: no inputs, and every rule is a no

// The program that an op computes with: of Pointwise, Attention, Softmax and Reduce; null for
// others. Its input 0 is input 0 of the op if the op's program reads that, else what the op has
// computed. Further inputs of the program are the others of OpTraits::program, in order.
const Program* program_of(const Op& op);

}  // namespace anneal
