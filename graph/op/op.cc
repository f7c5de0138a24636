#include "anneal/graph/op/op.h"

#include "anneal/core/fail.h"
#include "anneal/graph/op/op_names.h"
#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

constexpr std::string_view kNames[] = {"erased",
#define X(T) #T,
                                       ANNEAL_FOR_EACH_OP(X)
#undef X
};
static_assert(std::size(kNames) == std::variant_size_v<Op>);

template <size_t... I>
Op make(size_t index, std::index_sequence<I...>) {
  Op op;
  static_cast<void>(((I == index && (op.emplace<I>(), true)) || ...));
  return op;
}

}  // namespace

std::string_view op_name(size_t index) {
  check(index < std::size(kNames), "the index of an op");
  return kNames[index];
}

std::string_view to_string(const Op& op) { return op_name(op.index()); }

Op op_named(std::string_view name) {
  for (size_t index = 1; index < std::size(kNames); ++index)
    if (kNames[index] == name)
      return make(index, std::make_index_sequence<std::variant_size_v<Op>>());
  return {};
}

std::vector<BodyUse> bodies_of(const Op& op) {
  if (const auto* branch = std::get_if<If>(&op))
    return {{branch->then_body, 1, 0}, {branch->else_body, 1, 0}};
  if (const auto* loop = std::get_if<Loop>(&op)) {
    const int captures = 2 + static_cast<int>(loop->carried);
    return {{loop->body, captures, captures}};
  }
  if (const auto* scan = std::get_if<Scan>(&op)) {
    const int captures = static_cast<int>(scan->carried) + static_cast<int>(scan->axes.size());
    return {{scan->body, captures, captures}};
  }
  return {};
}

bool is_host_value(const Op& op, int input) {
  return input >= 0 && traits_of(op).host->contains(static_cast<size_t>(input));
}

uint64_t hash(const Op& op) {
  if (std::holds_alternative<std::monostate>(op)) return 0;
  ByteWriter bytes;
  save(bytes, op);
  return hash_bytes(bytes.take());
}

}  // namespace anneal
