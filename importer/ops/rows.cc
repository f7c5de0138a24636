#include "anneal/importer/ops/rows.h"

#include <algorithm>
#include <vector>

namespace anneal {

std::vector<std::span<const OpRow>> all_rows() {
#define ANNEAL_ROWS(name) name##_rows(),
  return {ANNEAL_FOR_EACH_OPERATOR_FAMILY(ANNEAL_ROWS)};
#undef ANNEAL_ROWS
}

const OpRow* find_row(std::string_view domain, std::string_view name, int opset) {
  for (const auto rows : all_rows())
    for (const OpRow& row : rows)
      if (row.name == name && row.domain == domain && row.since <= opset && opset <= row.until)
        return &row;
  return nullptr;
}

bool is_elementwise(const OpRow& row) {
  for (const auto rows : {activation_rows(), elementwise_rows(), logical_rows()})
    if (std::ranges::any_of(rows, [&](const OpRow& one) { return &one == &row; })) return true;
  return false;
}

const OpRow* find_row(std::string_view domain, std::string_view name) {
  for (const auto rows : all_rows())
    for (const OpRow& row : rows)
      if (row.name == name && row.domain == domain) return &row;
  return nullptr;
}

}  // namespace anneal
