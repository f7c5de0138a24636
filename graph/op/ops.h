// All ops of the graph, one plain struct each, and the list from which complete tables are
// generated.
//
// Names and axis order are ONNX's; meanings are ONNX's with defaults, negative axes, auto_pad and
// opset differences resolved by the importer. Inputs are listed behind each struct; [x] is
// optional. Integer inputs that decide shapes (i64, host values) are inputs, never fields: what is
// known of them, infer() reads from their contents. Every field has an initializer, so that
// Conv{.groups = 2} compiles without a warning.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anneal/core/dtype.h"
#include "anneal/core/shape.h"
#include "anneal/graph/op/custom_attribute.h"
#include "anneal/graph/op/op_enums.h"  // IWYU pragma: export
#include "anneal/graph/op/weight_encoding.h"
#include "anneal/graph/program/program.h"

namespace anneal {

// inputs: one or more that broadcast against each other to the output's shape. outputs: one per
// result.
struct Pointwise {
  Program program;
  static void fields(auto& op, auto&& f) { f("program", op.program); }
  bool operator==(const Pointwise&) const = default;
};

// inputs: x[N,C,spatial...], w[K,C/groups,kernel...], [x_zero_point], [w_zero_point: scalar or
// [K]]. 8-bit inputs accumulate in i32, and the output is i32; zero points only with them.
struct Conv {
  std::vector<int64_t> strides{}, pads_begin{}, pads_end{}, dilations{};  // one per spatial axis
  int64_t groups = 1;
  // If not empty, the op has one group and an output per entry: each output has that number of the
  // K channels, in order.
  std::vector<int64_t> split{};
  // The kernel must add up the products of x and w: those of Winograd's algorithm have other last
  // bits, also where sums are whole numbers.
  bool exact_sums = false;
  static void fields(auto& op, auto&& f) {
    f("strides", op.strides), f("pads_begin", op.pads_begin), f("pads_end", op.pads_end);
    f("dilations", op.dilations), f("groups", op.groups), f("split", op.split);
    f("exact_sums", op.exact_sums);
  }
  bool operator==(const Conv&) const = default;
};

// inputs: x[N,C,spatial...], w[C,K/groups,kernel...]. Output size: (in-1)*stride + output_padding +
// (kernel-1)*dilation + 1 - pads_begin - pads_end.
struct ConvTranspose {
  std::vector<int64_t> strides{}, pads_begin{}, pads_end{}, dilations{}, output_padding{};
  int64_t groups = 1;
  static void fields(auto& op, auto&& f) {
    f("strides", op.strides), f("pads_begin", op.pads_begin), f("pads_end", op.pads_end);
    f("dilations", op.dilations), f("output_padding", op.output_padding), f("groups", op.groups);
  }
  bool operator==(const ConvTranspose&) const = default;
};

// inputs: a[...,M,K], b[...,K,N], [a_zero_point], [b_zero_point] (scalar, or one per row of a /
// column of b), [b_scale]. Leading axes broadcast; both ranks >= 2. transpose_* swaps the last two
// axes first. Where a is f32, b may be f16 or bf16: the product is one of f32.
// With b_scale[G,N or 1], f32, the product is one by quantized weights: a is f32, f16 or bf16, and
// b[K,N] of 8 bits stands for the f32 numbers (b - b_zero_point) * b_scale, as of Dequantize. Each
// scale serves K/G rows of b, and transpose_b swaps the axes of b_scale as well. b_zero_point then
// has the shape of b_scale; there is no a_zero_point.
struct MatMul {
  bool transpose_a = false, transpose_b = false;
  std::vector<int64_t>
      split{};  // if not empty: an output per entry, each with that number of columns
  // Others than kIntegers only with b_scale and transpose_b: each row of b, u8[N,bytes], holds the
  // codes of K numbers, the first of a byte in its lowest bits. An absent b_zero_point is then the
  // middle, 8 of kU4 and 2 of kU2, and floats have none.
  WeightEncoding b_encoding = WeightEncoding::kIntegers;
  // A kernel that is not exact may round a to 8 bits, with a scale for each row and each K/G.
  bool may_round_a = false;
  static void fields(auto& op, auto&& f) {
    f("transpose_a", op.transpose_a), f("transpose_b", op.transpose_b), f("split", op.split);
    f("b_encoding", op.b_encoding), f("may_round_a", op.may_round_a);
  }
  bool operator==(const MatMul&) const = default;
};

// inputs: x[N,C,spatial...]. outputs: y, and with_indices the flat row-major index of each maximum
// (i64).
struct Pool {
  PoolKind kind = PoolKind::kMax;
  std::vector<int64_t> kernel{}, strides{}, pads_begin{}, pads_end{},
      dilations{};                 // one per spatial axis
  bool ceil_mode = false;          // round the output size up
  bool count_include_pad = false;  // kAverage: padding counts in the divisor
  int64_t p = 2;                   // kLp
  bool with_indices = false;       // kMax
  bool column_major_indices = false;
  static void fields(auto& op, auto&& f) {
    f("kind", op.kind), f("kernel", op.kernel), f("strides", op.strides);
    f("pads_begin", op.pads_begin), f("pads_end", op.pads_end), f("dilations", op.dilations);
    f("ceil_mode", op.ceil_mode), f("count_include_pad", op.count_include_pad), f("p", op.p);
    f("with_indices", op.with_indices), f("column_major_indices", op.column_major_indices);
  }
  bool operator==(const Pool&) const = default;
};

// inputs: q[B,H,L,D], k[B,G,S,D], v[B,G,S,E], [further inputs of score]. output: y[B,H,L,E], which
// is softmax(score(q k^T, further...)) v, the softmax over S. H is a multiple of G: head h of q
// goes with head h / (H / G) of k and v. score: of one result; its input 0 is the accumulator of q
// k^T, further inputs broadcast to [B,H,L,S], whose axes index() counts; empty: the scores are
// unchanged. A row that sees nothing, whose scores are all -inf, gives NaN, or 0 if hidden_is_zero.
// Weights stay in the accumulator's type. k and v may be f16, bf16, i8 or u8 where q is f32. A row
// of u8 has two numbers of 4 bits in each byte, with 8 added: the low bits of all bytes are the
// first half of its columns.
struct Attention {
  Program score{};
  bool hidden_is_zero = false;
  static void fields(auto& op, auto&& f) {
    f("score", op.score), f("hidden_is_zero", op.hidden_is_zero);
  }
  bool operator==(const Attention&) const = default;
};

// inputs: x, [further inputs of map]. The softmax is of map(x, further...), as in Reduce.
struct Softmax {
  int64_t axis = 0;
  bool log = false;
  Program map{};
  static void fields(auto& op, auto&& f) { f("axis", op.axis), f("log", op.log), f("map", op.map); }
  bool operator==(const Softmax&) const = default;
};

// inputs: x. (x - mean) / sqrt(variance + epsilon) over `axes`, population variance; without
// subtract_mean x / sqrt(mean of squares + epsilon). Statistics in f32 (f64 for f64).
struct Normalize {
  std::vector<int64_t> axes{};  // ascending
  float epsilon = 1e-5f;
  bool subtract_mean = true;
  static void fields(auto& op, auto&& f) {
    f("axes", op.axes), f("epsilon", op.epsilon), f("subtract_mean", op.subtract_mean);
  }
  bool operator==(const Normalize&) const = default;
};

// inputs: x, axes, [further inputs of map]. An empty list of axes reduces none. kMax and kMin of
// bool are any and all. map: a program of one result that is applied to x and the further inputs,
// which broadcast against each other, before anything is reduced; axes and index() count in the
// shape that they have together, and its result's type is the one reduced. Empty: x itself.
struct Reduce {
  ReduceKind kind = ReduceKind::kSum;
  bool keepdims = true;
  Program map{};
  static void fields(auto& op, auto&& f) {
    f("kind", op.kind), f("keepdims", op.keepdims), f("map", op.map);
  }
  bool operator==(const Reduce&) const = default;
};

// inputs: x. output: i64.
struct ArgReduce {
  bool largest = true;  // else the smallest
  int64_t axis = 0;
  bool keepdims = true;
  bool select_last = false;  // among equals
  static void fields(auto& op, auto&& f) {
    f("largest", op.largest), f("axis", op.axis), f("keepdims", op.keepdims);
    f("select_last", op.select_last);
  }
  bool operator==(const ArgReduce&) const = default;
};

// inputs: x, axis (scalar)
struct Cumulative {
  CumulativeKind kind = CumulativeKind::kSum;
  bool exclusive = false, reverse = false;
  static void fields(auto& op, auto&& f) {
    f("kind", op.kind), f("exclusive", op.exclusive), f("reverse", op.reverse);
  }
  bool operator==(const Cumulative&) const = default;
};

// inputs: x, k[1]. outputs: values, indices (i64). Of equal elements the lower index comes first.
// of: whether the values are those of x or of its softmax along the axis; x alone decides their
// order.
struct TopK {
  int64_t axis = 0;
  bool largest = true, sorted = true;
  TopKOf of = TopKOf::kValues;
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis), f("largest", op.largest), f("sorted", op.sorted), f("of", op.of);
  }
  bool operator==(const TopK&) const = default;
};

// inputs: x, shape[rank]. One -1 is the remaining size; a 0 copies x's size unless allow_zero.
struct Reshape {
  bool allow_zero = false;
  static void fields(auto& op, auto&& f) { f("allow_zero", op.allow_zero); }
  bool operator==(const Reshape&) const = default;
};

// inputs: x. Output axis i is input axis permutation[i].
struct Transpose {
  std::vector<int64_t> permutation{};
  static void fields(auto& op, auto&& f) { f("permutation", op.permutation); }
  bool operator==(const Transpose&) const = default;
};

// inputs: one or more
struct Concat {
  int64_t axis = 0;
  static void fields(auto& op, auto&& f) { f("axis", op.axis); }
  bool operator==(const Concat&) const = default;
};

// inputs: x, starts, ends, axes, steps (one element per sliced axis). Negative values and clamping
// as in ONNX Slice.
struct Slice {
  static void fields(auto&, auto&&) {}
  bool operator==(const Slice&) const = default;
};

// inputs: x, pads[2*rank: begins, then ends], [value: scalar, 0 if absent]. Negative pads crop.
struct Pad {
  PadMode mode = PadMode::kConstant;
  static void fields(auto& op, auto&& f) { f("mode", op.mode); }
  bool operator==(const Pad&) const = default;
};

// inputs: x, shape; broadcasts both ways, as ONNX Expand.
struct Expand {
  static void fields(auto&, auto&&) {}
  bool operator==(const Expand&) const = default;
};

// inputs: x, repeats[rank]
struct Tile {
  static void fields(auto&, auto&&) {}
  bool operator==(const Tile&) const = default;
};

// inputs: x, indices. Negative indices count from the end, in all gathers and scatters.
struct Gather {
  int64_t axis = 0;
  static void fields(auto& op, auto&& f) { f("axis", op.axis); }
  bool operator==(const Gather&) const = default;
};
struct GatherElements {
  int64_t axis = 0;
  static void fields(auto& op, auto&& f) { f("axis", op.axis); }
  bool operator==(const GatherElements&) const = default;
};
struct GatherND {
  int64_t batch_dims = 0;
  static void fields(auto& op, auto&& f) { f("batch_dims", op.batch_dims); }
  bool operator==(const GatherND&) const = default;
};

// inputs: x, indices, updates
struct ScatterElements {
  int64_t axis = 0;
  ScatterReduction reduction = ScatterReduction::kNone;
  static void fields(auto& op, auto&& f) { f("axis", op.axis), f("reduction", op.reduction); }
  bool operator==(const ScatterElements&) const = default;
};
struct ScatterND {
  ScatterReduction reduction = ScatterReduction::kNone;
  static void fields(auto& op, auto&& f) { f("reduction", op.reduction); }
  bool operator==(const ScatterND&) const = default;
};

// inputs: x. output: i64, the sizes of axes [start, end) of x.
struct ShapeOf {
  int64_t start = 0, end = 0;
  static void fields(auto& op, auto&& f) { f("start", op.start), f("end", op.end); }
  bool operator==(const ShapeOf&) const = default;
};

// no inputs. output: i64, the values of size expressions; a scalar if `scalar` (then one element).
struct SizeTensor {
  std::vector<Size> elements{};
  bool scalar = false;
  static void fields(auto& op, auto&& f) { f("elements", op.elements), f("scalar", op.scalar); }
  bool operator==(const SizeTensor&) const = default;
};

// inputs: start, limit, delta (scalars of one type)
struct Range {
  static void fields(auto&, auto&&) {}
  bool operator==(const Range&) const = default;
};

// inputs: x, [sizes[one per resized axis]], [roi[2 * resized axes]], [scales: f32, one per resized
// axis]. Exactly one of the field `scales`, the input sizes and the input scales is given; scales
// are used for coordinates when given, else output / input size.
struct Resize {
  ResizeMode mode = ResizeMode::kNearest;
  ResizeCoordinates coordinates = ResizeCoordinates::kHalfPixel;
  ResizeNearest nearest = ResizeNearest::kRoundPreferFloor;
  ResizePolicy policy = ResizePolicy::kStretch;
  std::vector<int64_t> axes{};  // ascending
  std::vector<float> scales{};  // known ones
  float cubic_coefficient = -0.75f;
  bool exclude_outside = false, antialias = false;
  float extrapolation_value = 0;
  static void fields(auto& op, auto&& f) {
    f("mode", op.mode), f("coordinates", op.coordinates), f("nearest", op.nearest);
    f("policy", op.policy), f("axes", op.axes), f("scales", op.scales);
    f("cubic_coefficient", op.cubic_coefficient), f("exclude_outside", op.exclude_outside);
    f("antialias", op.antialias), f("extrapolation_value", op.extrapolation_value);
  }
  bool operator==(const Resize&) const = default;
};

// inputs: x (float or i32), scale, [zero_point]. scale: scalar, [size of axis], or for block_size >
// 0 the shape of x with `axis` divided by it. q = saturate(round_half_even(x / scale) +
// zero_point).
struct Quantize {
  int64_t axis = 0;
  int64_t block_size = 0;
  DataType dtype = DataType::kU8;  // of the output
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis), f("block_size", op.block_size), f("dtype", op.dtype);
  }
  bool operator==(const Quantize&) const = default;
};

// inputs: x, scale, [zero_point]. (x - zero_point) * scale, in the type of scale. With an encoding
// of floats x is u8, a code in each byte, and there is no zero point. REQUIRES: not kU4 or kU2
struct Dequantize {
  int64_t axis = 0;
  int64_t block_size = 0;
  WeightEncoding encoding = WeightEncoding::kIntegers;
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis), f("block_size", op.block_size), f("encoding", op.encoding);
  }
  bool operator==(const Dequantize&) const = default;
};

// inputs: x[N,C,spatial...], grid[N,out...,spatial axes], coordinates in -1..1, the last axis of x
// first. kCubic has the coefficient -0.75.
struct GridSample {
  ResizeMode mode = ResizeMode::kLinear;
  GridPadding padding = GridPadding::kZeros;
  bool align_corners = false;
  static void fields(auto& op, auto&& f) {
    f("mode", op.mode), f("padding", op.padding), f("align_corners", op.align_corners);
  }
  bool operator==(const GridSample&) const = default;
};

// inputs: x[N,C,H,W], regions[R,4] (x1, y1, x2, y2 in units of 1 / spatial_scale), images[R] (i64,
// the n of each region). kind is kAverage or kMax of the samples of a bin.
struct RoiAlign {
  PoolKind kind = PoolKind::kAverage;
  int64_t height = 1, width = 1;  // of the output
  int64_t sampling_ratio = 0;     // samples per axis of a bin; 0: ceil(region / output size)
  float spatial_scale = 1;
  bool half_pixel = true;  // shifts regions by half a pixel, and lets them be empty
  static void fields(auto& op, auto&& f) {
    f("kind", op.kind), f("height", op.height), f("width", op.width);
    f("sampling_ratio", op.sampling_ratio), f("spatial_scale", op.spatial_scale);
    f("half_pixel", op.half_pixel);
  }
  bool operator==(const RoiAlign&) const = default;
};

// inputs: x. output: i64[rank of x, number of elements that are not 0], their coordinates,
// row-major.
struct NonZero {
  static void fields(auto&, auto&&) {}
  bool operator==(const NonZero&) const = default;
};

// inputs: x. outputs: the distinct elements (or slices along axis), then i64: the first index of
// each, for each element of x its index among the distinct elements, and how often each occurs.
// `flatten`: all elements count, axis is not used. Not sorted: in the order of first occurrence.
struct Unique {
  int64_t axis = 0;
  bool flatten = true, sorted = true;
  static void fields(auto& op, auto&& f) {
    f("axis", op.axis), f("flatten", op.flatten), f("sorted", op.sorted);
  }
  bool operator==(const Unique&) const = default;
};

// inputs: boxes[N,S,4], scores[N,C,S], [most boxes per class: i64 scalar, 0 if absent], [IoU
// threshold: 0], [score threshold: none]. output: i64[number of boxes, 3]: image, class, box.
// A box is two corners in any order, y first, or centre_x, centre_y, width, height.
struct NonMaxSuppression {
  bool center_point_box = false;
  static void fields(auto& op, auto&& f) { f("center_point_box", op.center_point_box); }
  bool operator==(const NonMaxSuppression&) const = default;
};

// inputs: x, lengths (i64, one per element of batch_axis): the first `length` elements of
// time_axis come in reverse order.
struct ReverseSequence {
  int64_t batch_axis = 1, time_axis = 0;
  static void fields(auto& op, auto&& f) {
    f("batch_axis", op.batch_axis), f("time_axis", op.time_axis);
  }
  bool operator==(const ReverseSequence&) const = default;
};

// inputs: x[rows, features] (f32 or f64), and of all trees' nodes: features i32[nodes], thresholds
// [nodes] of x's type, children i32[nodes, 2], then roots i32[trees]. output: i32[rows, trees], the
// node that each row reaches in each tree: from the root on, one of the first `leaves` nodes, or
// the node behind `depth` tests. A row goes on to the second child where its feature is the
// threshold or less, else, also with NaN, to the first.
struct DecisionTrees {
  int64_t leaves = 1, depth = 1;
  static void fields(auto& op, auto&& f) { f("leaves", op.leaves), f("depth", op.depth); }
  bool operator==(const DecisionTrees&) const = default;
};

// inputs: x[T,N,in], w[D,G*H,in], r[D,G*H,H], [b[D,2*G*H]], [lengths[N], i32], [h0[D,N,H]], and for
// kLstm [c0[D,N,H]], [peepholes[D,3*H]]. D: directions; G: gates: kRnn 1, kGru 3 (z, r, h), kLstm 4
// (i, o, f, c; peepholes i, o, f). outputs: y[T,D,N,H], h[D,N,H], and for kLstm c[D,N,H]. Steps
// beyond a sequence's length give 0. Activations are those of ONNX: of the gates, of the cell
// (kRnn: the only one) and, kLstm, of the output.
struct Recurrent {
  RecurrentKind kind = RecurrentKind::kLstm;
  Direction direction = Direction::kForward;
  Activation gate = Activation::kSigmoid, cell = Activation::kTanh, output = Activation::kTanh;
  std::vector<float> alphas{}, betas{};  // of gate, cell and output; empty: none is used
  float clip = 0;                        // limits the inputs of the gates and of the cell; 0: none
  bool linear_before_reset = false;      // kGru
  bool input_forget = false;             // kLstm: the forget gate is 1 - i
  static void fields(auto& op, auto&& f) {
    f("kind", op.kind), f("direction", op.direction), f("gate", op.gate), f("cell", op.cell);
    f("output", op.output), f("alphas", op.alphas), f("betas", op.betas), f("clip", op.clip);
    f("linear_before_reset", op.linear_before_reset), f("input_forget", op.input_forget);
  }
  bool operator==(const Recurrent&) const = default;
};

// Attention that keeps a state instead of scores: of each head a matrix S[K,V], updated by each
// position in turn:
//   S = exp(decay) * S, for each row of S or for all;
//   S = S + k (beta * (v - S'k))', or without beta S + k v';  y = scale * S'q.
// S' is the transpose of S. "Gated Delta Networks", Yang et al. 2024, with all inputs, has beta and
// a decay for each head.
// inputs, f32: q[B,T,Q,K], k[B,T,N,K], v[B,T,H,V], [state[B,H,K,V], or, transposed, [B,H,V,K]; by
// default zeros], [decay[B,T,H,1 or K]], [beta[B,T,H or 1]]. H is a multiple of N, and a multiple
// or a divisor of Q: heads of the fewer serve consecutive heads of the more. outputs:
// y[B,T,max(Q,H),V], the state after the last position.
struct LinearAttention {
  float scale = 1;
  bool transposed = false;
  static void fields(auto& op, auto&& f) { f("scale", op.scale), f("transposed", op.transposed); }
  bool operator==(const LinearAttention&) const = default;
};

// inputs: x. output: its bits as elements of another type of the same size.
struct BitCast {
  DataType dtype = DataType::kI32;
  static void fields(auto& op, auto&& f) { f("dtype", op.dtype); }
  bool operator==(const BitCast&) const = default;
};

// inputs: condition (one bool, of any number of axes), [given], [wanted] (i64 vectors that an error
// names). output: the condition. A run fails if it does not hold: the engine was built on the
// assumption that it does, or, with numbers, the operator demands it. A Require is not erased for
// lack of users, but once the condition is known to hold.
struct Require {
  static void fields(auto&, auto&&) {}
  bool operator==(const Require&) const = default;
};

class CustomOperator;  // graph/op/custom_operator.h

// inputs: any number of tensors, any of them absent. outputs: as the operator's library infers. The
// domain "" is ai.onnx.
struct Custom {
  std::string domain{}, type{}, library{};
  int64_t since = 1, version = 0;  // of the operator in the library
  int64_t outputs = 1;
  std::vector<CustomAttribute> attributes{};
  // No field: found by name when an engine file is loaded. Null: nothing can be asked of the op.
  std::shared_ptr<const CustomOperator> definition{};
  static void fields(auto& op, auto&& f) {
    f("domain", op.domain), f("type", op.type), f("library", op.library), f("since", op.since);
    f("version", op.version), f("outputs", op.outputs), f("attributes", op.attributes);
  }
  bool operator==(const Custom&) const = default;
};

// Control flow runs bodies: graphs beside the graph, by index. A body sees only its inputs; the
// values of the outer graph that it uses are captures, the last inputs of layer and body alike.
//
// inputs: condition (bool scalar), captures. Both bodies take the captures, and give the outputs.
struct If {
  int64_t then_body = 0, else_body = 1;
  static void fields(auto& op, auto&& f) {
    f("then_body", op.then_body), f("else_body", op.else_body);
  }
  bool operator==(const If&) const = default;
};

// inputs: trip count (i64 scalar), [condition: bool scalar], carried values, captures. body:
// iteration (i64 scalar), condition (bool scalar), carried, captures -> condition, carried,
// elements. outputs: carried, then the elements of all iterations stacked on a new axis 0. counted:
// it goes through all iterations of the trip count, whatever the conditions are.
struct Loop {
  int64_t body = 0, carried = 0;
  bool counted = false;
  static void fields(auto& op, auto&& f) {
    f("body", op.body), f("carried", op.carried), f("counted", op.counted);
  }
  bool operator==(const Loop&) const = default;
};

// inputs: carried values, sequences, captures. body: carried, one slice of each sequence, captures
// -> carried, elements. outputs: carried, then the stacked elements. One axis and direction (1:
// from the end) per sequence, and per element of the body.
struct Scan {
  int64_t body = 0, carried = 0;
  std::vector<int64_t> axes{}, reverse{}, output_axes{}, output_reverse{};
  static void fields(auto& op, auto&& f) {
    f("body", op.body), f("carried", op.carried), f("axes", op.axes), f("reverse", op.reverse);
    f("output_axes", op.output_axes), f("output_reverse", op.output_reverse);
  }
  bool operator==(const Scan&) const = default;
};

#define ANNEAL_FOR_EACH_OP(X) \
  X(Pointwise)                \
  X(Conv)                     \
  X(ConvTranspose)            \
  X(MatMul)                   \
  X(Pool)                     \
  X(Attention)                \
  X(Softmax)                  \
  X(Normalize)                \
  X(Reduce)                   \
  X(ArgReduce)                \
  X(Cumulative)               \
  X(TopK)                     \
  X(Reshape)                  \
  X(Transpose)                \
  X(Concat)                   \
  X(Slice)                    \
  X(Pad)                      \
  X(Expand)                   \
  X(Tile)                     \
  X(Gather)                   \
  X(GatherElements)           \
  X(GatherND)                 \
  X(ScatterElements)          \
  X(ScatterND)                \
  X(ShapeOf)                  \
  X(SizeTensor)               \
  X(Range)                    \
  X(Resize)                   \
  X(Quantize)                 \
  X(Dequantize)               \
  X(GridSample)               \
  X(RoiAlign)                 \
  X(NonZero)                  \
  X(Unique)                   \
  X(NonMaxSuppression)        \
  X(ReverseSequence)          \
  X(DecisionTrees)            \
  X(BitCast)                  \
  X(Require)                  \
  X(Recurrent)                \
  X(LinearAttention)          \
  X(Custom)                   \
  X(If)                       \
  X(Loop)                     \
  X(Scan)

}  // namespace anneal
