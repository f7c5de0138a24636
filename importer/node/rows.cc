#include "anneal/importer/node/rows.h"

#include <algorithm>
#include <vector>

namespace anneal {

std::vector<std::span<const OpRow>> all_rows() {
  return {activation_rows(),    attention_rows(),
          block_weights_rows(), deform_rows(),
          einsum_rows(),        elementwise_rows(),
          fused_rows(),         gather_rows(),
          generate_rows(),      group_attention_rows(),
          image_rows(),         linear_rows(),
          logical_rows(),       loss_rows(),
          norm_rows(),          pad_rows(),
          pool_rows(),          qlinear_rows(),
          quant_rows(),         random_rows(),
          recurrent_rows(),     reduce_rows(),
          resize_rows(),        rotary_rows(),
          sample_rows(),        select_rows(),
          shape_rows(),         signal_rows(),
          slice_rows(),         squeeze_rows(),
          state_rows()};
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
