#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

template <class T>
struct RequireTraits {
  static constexpr const OpTraits& traits = op_traits<T>;
  static_assert(traits.arity.has_value(), "the trait `arity` is missing");
  static_assert(traits.host.has_value(), "the trait `host` is missing");
  static_assert(traits.data.has_value(), "the trait `data` is missing");
  static_assert(traits.program.has_value(), "the trait `program` is missing");
  static_assert(traits.epilogue.has_value(), "the trait `epilogue` is missing");
  static_assert(traits.half.has_value(), "the trait `half` is missing");
  static_assert(traits.view.has_value(), "the trait `view` is missing");
  static_assert(traits.transpose.has_value(), "the trait `transpose` is missing");
  static_assert(traits.batch.has_value(), "the trait `batch` is missing");
};
#define X(T) template struct RequireTraits<T>;
ANNEAL_FOR_EACH_OP(X)
#undef X

constexpr OpTraits kErased = {.arity = Arity{0, 0},
                              .host = kNoInputs,
                              .data = kNoInputs,
                              .program = kNoInputs,
                              .epilogue = EpilogueRule::kNever,
                              .half = HalfRole::kFixed,
                              .view = ViewRule::kNone,
                              .transpose = TransposeRule::kStays,
                              .batch = BatchRule::kMixesRows};

}  // namespace

const OpTraits& traits_of(const Op& op) {
  static constexpr const OpTraits* kOfOps[] = {
    &kErased,
#define X(T) &op_traits<T>,
    ANNEAL_FOR_EACH_OP(X)
#undef X
  };
  static_assert(std::size(kOfOps) == std::variant_size_v<Op>);
  return *kOfOps[op.index()];
}

const Program* program_of(const Op& op) {
  return std::visit(
      []<class T>(const T& one) -> const Program* {
        if constexpr (requires { one.program; }) return &one.program;
        if constexpr (requires { one.map; }) return &one.map;
        if constexpr (requires { one.score; }) return &one.score;
        return nullptr;
      },
      op);
}

}  // namespace anneal
