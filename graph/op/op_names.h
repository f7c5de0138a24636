// The names of ops and of the enumerators of ops.h in the text form.
#pragma once
#include <concepts>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "anneal/graph/op/op.h"

namespace anneal {

// A default-constructed op; monostate if there is none of that name.
Op op_named(std::string_view name);

template <class E>
struct EnumNames;  // `last` is the greatest enumerator

template <>
struct EnumNames<PoolKind> {
  static constexpr auto last = PoolKind::kLp;
  static constexpr std::string_view names[] = {"max", "average", "lp"};
};
template <>
struct EnumNames<ReduceKind> {
  static constexpr auto last = ReduceKind::kProd;
  static constexpr std::string_view names[] = {"sum", "mean", "max", "min", "prod"};
};
template <>
struct EnumNames<CumulativeKind> {
  static constexpr auto last = CumulativeKind::kProd;
  static constexpr std::string_view names[] = {"sum", "prod"};
};
template <>
struct EnumNames<TopKOf> {
  static constexpr auto last = TopKOf::kLogSoftmax;
  static constexpr std::string_view names[] = {"values", "softmax", "log_softmax"};
};
template <>
struct EnumNames<PadMode> {
  static constexpr auto last = PadMode::kWrap;
  static constexpr std::string_view names[] = {"constant", "reflect", "edge", "wrap"};
};
template <>
struct EnumNames<ScatterReduction> {
  static constexpr auto last = ScatterReduction::kMin;
  static constexpr std::string_view names[] = {"none", "add", "mul", "max", "min"};
};
template <>
struct EnumNames<ResizeMode> {
  static constexpr auto last = ResizeMode::kCubic;
  static constexpr std::string_view names[] = {"nearest", "linear", "cubic"};
};
template <>
struct EnumNames<ResizeCoordinates> {
  static constexpr auto last = ResizeCoordinates::kTfCropAndResize;
  static constexpr std::string_view names[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
      "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
};
template <>
struct EnumNames<ResizeNearest> {
  static constexpr auto last = ResizeNearest::kCeil;
  static constexpr std::string_view names[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                               "ceil"};
};
template <>
struct EnumNames<ResizePolicy> {
  static constexpr auto last = ResizePolicy::kNotSmaller;
  static constexpr std::string_view names[] = {"stretch", "not_larger", "not_smaller"};
};

template <>
struct EnumNames<WeightEncoding> {
  static constexpr auto last = WeightEncoding::kNf4;
  static constexpr std::string_view names[] = {"integers", "u4",   "u2",  "e4m3",
                                               "e5m2",     "e2m1", "fp4", "nf4"};
};
template <>
struct EnumNames<GridPadding> {
  static constexpr auto last = GridPadding::kReflection;
  static constexpr std::string_view names[] = {"zeros", "border", "reflection"};
};
template <>
struct EnumNames<RecurrentKind> {
  static constexpr auto last = RecurrentKind::kLstm;
  static constexpr std::string_view names[] = {"rnn", "gru", "lstm"};
};
template <>
struct EnumNames<Direction> {
  static constexpr auto last = Direction::kBidirectional;
  static constexpr std::string_view names[] = {"forward", "reverse", "bidirectional"};
};
template <>
struct EnumNames<Activation> {
  static constexpr auto last = Activation::kSoftplus;
  static constexpr std::string_view names[] = {
      "sigmoid",     "tanh",         "relu", "affine",   "leaky_relu", "thresholded_relu",
      "scaled_tanh", "hard_sigmoid", "elu",  "softsign", "softplus"};
};

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::last;
};

template <NamedEnum E>
constexpr std::span<const std::string_view> names_of() {
  static_assert(std::size(EnumNames<E>::names) == static_cast<size_t>(EnumNames<E>::last) + 1);
  return EnumNames<E>::names;
}
template <NamedEnum E>
std::string_view to_string(E value) {
  return names_of<E>()[static_cast<size_t>(value)];
}
template <NamedEnum E>
std::optional<E> enumerator(std::string_view name) {
  for (size_t i = 0; i < names_of<E>().size(); ++i)
    if (names_of<E>()[i] == name) return static_cast<E>(i);
  return std::nullopt;
}

// The element type of a std::vector.
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

}  // namespace anneal
