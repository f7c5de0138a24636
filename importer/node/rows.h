// The table of ONNX operators: one row per operator and range of opsets in which it means the same
// to us. Each family has its rows beside its functions.
#pragma once
#include <span>
#include <string_view>

#include "anneal/importer/node/node.h"

namespace anneal {

inline constexpr int kLatest = 1 << 20;
// Of ai.onnx. In a newer opset, operators may have changed their meaning.
inline constexpr int kNewestOpset = 28;

inline constexpr std::string_view kMicrosoft = "com.microsoft";

struct OpRow {
  std::string_view domain, name;   // "" is ai.onnx
  int since = 1, until = kLatest;  // opsets, inclusive
  Outputs (*import)(Node&) = nullptr;
};

std::span<const OpRow> activation_rows();
std::span<const OpRow> attention_rows();
std::span<const OpRow> block_weights_rows();
std::span<const OpRow> deform_rows();
std::span<const OpRow> einsum_rows();
std::span<const OpRow> elementwise_rows();
std::span<const OpRow> fused_rows();
std::span<const OpRow> gather_rows();
std::span<const OpRow> generate_rows();
std::span<const OpRow> group_attention_rows();
std::span<const OpRow> image_rows();
std::span<const OpRow> linear_rows();
std::span<const OpRow> logical_rows();
std::span<const OpRow> loss_rows();
std::span<const OpRow> norm_rows();
std::span<const OpRow> pad_rows();
std::span<const OpRow> pool_rows();
std::span<const OpRow> qlinear_rows();
std::span<const OpRow> quant_rows();
std::span<const OpRow> random_rows();
std::span<const OpRow> recurrent_rows();
std::span<const OpRow> reduce_rows();
std::span<const OpRow> resize_rows();
std::span<const OpRow> rotary_rows();
std::span<const OpRow> sample_rows();
std::span<const OpRow> select_rows();
std::span<const OpRow> shape_rows();
std::span<const OpRow> signal_rows();
std::span<const OpRow> slice_rows();
std::span<const OpRow> squeeze_rows();
std::span<const OpRow> state_rows();

std::vector<std::span<const OpRow>> all_rows();
const OpRow* find_row(std::string_view domain, std::string_view name, int opset);
// Whether it gives each element from one of each input, broadcast. REQUIRES: row is of the table.
bool is_elementwise(const OpRow& row);
// A row of any opset: tells an unknown operator from an unknown opset.
const OpRow* find_row(std::string_view domain, std::string_view name);

}  // namespace anneal
