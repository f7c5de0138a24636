// Op: one of the structs of ops.h, with the functions that are derived from fields().
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "anneal/core/bytes.h"
#include "anneal/core/size/size.h"
#include "anneal/graph/op/ops.h"

namespace anneal {

// monostate: an erased layer
#define X(T) , T
using Op = std::variant<std::monostate ANNEAL_FOR_EACH_OP(X)>;
#undef X

namespace detail {
template <class T, class V>
struct IndexIn;
template <class T, class... A>
struct IndexIn<T, std::variant<A...>> {
  static constexpr size_t value = [] {
    size_t i = 0;
    static_cast<void>(((std::is_same_v<T, A> ? false : (++i, true)) && ...));
    return i;
  }();
};
}  // namespace detail
template <class T>
inline constexpr size_t op_index = detail::IndexIn<T, Op>::value;

std::string_view to_string(const Op& op);  // "Softmax"
std::string_view op_name(size_t index);    // of op_index
std::string to_string(
    const Op& op, const SizeTable& sizes);  // "Softmax axis=1": fields that differ from the default
Op op_from_text(std::string_view text, SizeTable& sizes);  // fails with kInvalidArgument
// By op name, not by index, so that adding an op leaves old bytes readable.
void save(ByteWriter& to, const Op& op);
Op load_op(ByteReader& from);  // fails with kIncompatiblePlan; enums and counts are checked
uint64_t hash(const Op& op);

// Whether this input of the op decides shapes, so that shape inference reads it: it lies on the
// host, whatever device runs the op. A layer's further inputs, those of its epilogues, never do.
bool is_host_value(const Op& op, int input);

// A body that an op of control flow runs: input `outer + i` of the layer is input `inner + i` of
// the body, for every capture i.
struct BodyUse {
  int64_t body = 0;
  int outer = 0, inner = 0;
};
std::vector<BodyUse> bodies_of(const Op& op);  // none for other ops

}  // namespace anneal
