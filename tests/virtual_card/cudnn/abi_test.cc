// Our declarations of cuDNN's backend interface against its header.
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "anneal/tests/virtual_card/cudnn/abi.h"
// After ours: it defines macros.
#include <cudnn_graph.h>

namespace anneal::fake_cudnn {
namespace {

TEST(FakeCudnnAbi, Values) {
#define X(name, value) EXPECT_EQ(static_cast<int64_t>(::name), int64_t{value}) << #name;
  FAKE_CUDNN_STATUSES(X)
  FAKE_CUDNN_DATA_TYPES(X)
  FAKE_CUDNN_POINTWISE_MODES(X)
  FAKE_CUDNN_REDUCTION_OPERATORS(X)
  FAKE_CUDNN_ATTRIBUTE_TYPES(X)
  FAKE_CUDNN_ATTRIBUTES(X)
  FAKE_CUDNN_DESCRIPTOR_TYPES(X)
  FAKE_CUDNN_NUMERICAL_NOTES(X)
  FAKE_CUDNN_BEHAVIOR_NOTES(X)
  FAKE_CUDNN_KNOB_TYPES(X)
  FAKE_CUDNN_HEURISTIC_MODES(X)
#undef X
  EXPECT_EQ(static_cast<int>(::CUDNN_CROSS_CORRELATION), int{CUDNN_CROSS_CORRELATION});
  EXPECT_EQ(CUDNN_DIM_MAX, kMostDims);
}

// Parameters travel alike: pointers, integers and enumerators of the same size.
template <class Ours, class Theirs>
constexpr bool is_passed_alike = std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                                 sizeof(Ours) == sizeof(Theirs);
template <>
constexpr bool is_passed_alike<void, void> = true;

template <class Ours, class Theirs>
struct AreAlike : std::false_type {};
template <class R1, class... A1, class R2, class... A2>
requires(sizeof...(A1) == sizeof...(A2)) struct AreAlike<R1 (*)(A1...), R2 (*)(A2...)>
    : std::bool_constant<is_passed_alike<R1, R2> && (is_passed_alike<A1, A2> && ...)> {
};

TEST(FakeCudnnAbi, Functions) {
#define X(function, result, ...) \
  EXPECT_TRUE((AreAlike<result (*)(__VA_ARGS__), decltype(&::function)>::value)) << #function;
  FAKE_CUDNN_FUNCTIONS(X)
#undef X
  EXPECT_FALSE((AreAlike<int (*)(int), int (*)(int*)>::value));
  EXPECT_FALSE((AreAlike<int (*)(int), int (*)(int, int)>::value));
}

}  // namespace
}  // namespace anneal::fake_cudnn
