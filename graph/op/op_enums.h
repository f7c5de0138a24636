// The enumerations of ops' fields.
#pragma once
#include <cstdint>

namespace anneal {

enum class PoolKind : uint8_t { kMax, kAverage, kLp };
enum class ReduceKind : uint8_t { kSum, kMean, kMax, kMin, kProd };
enum class CumulativeKind : uint8_t { kSum, kProd };
enum class TopKOf : uint8_t { kValues, kSoftmax, kLogSoftmax };
enum class PadMode : uint8_t { kConstant, kReflect, kEdge, kWrap };
enum class ScatterReduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };
enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
enum class ResizeCoordinates : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixelForNn,
  kTfCropAndResize
};
enum class ResizeNearest : uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
enum class ResizePolicy : uint8_t { kStretch, kNotLarger, kNotSmaller };
enum class GridPadding : uint8_t { kZeros, kBorder, kReflection };
enum class RecurrentKind : uint8_t { kRnn, kGru, kLstm };
enum class Direction : uint8_t { kForward, kReverse, kBidirectional };
enum class Activation : uint8_t {
  kSigmoid,
  kTanh,
  kRelu,
  kAffine,           // alpha*x + beta
  kLeakyRelu,        // x < 0 ? alpha*x : x
  kThresholdedRelu,  // x > alpha ? x : 0
  kScaledTanh,       // alpha*tanh(beta*x)
  kHardSigmoid,      // min(max(alpha*x + beta, 0), 1)
  kElu,              // x < 0 ? alpha*(exp(x) - 1) : x
  kSoftsign,         // x / (1 + |x|)
  kSoftplus          // log(1 + exp(x))
};

}  // namespace anneal
