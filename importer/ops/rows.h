// The table of ONNX operators: one row per operator and range of opsets in which it means the same
// to us. Each family has its rows beside its functions.
#pragma once
#include <span>
#include <string_view>

#include "anneal/importer/node/node.h"

namespace anneal {

inline constexpr int kLatest = 1 << 20;
// The newest opset of ai.onnx that was checked. A newer opset may change the meaning of operators.
inline constexpr int kNewestOpset = 28;

inline constexpr std::string_view kMicrosoft = "com.microsoft";
inline constexpr std::string_view kMl = "ai.onnx.ml";
inline constexpr std::string_view kTensorRt = "trt";  // of NVIDIA's Model Optimizer

struct OpRow {
  std::string_view domain, name;   // "" is ai.onnx
  int since = 1, until = kLatest;  // opsets, inclusive
  Outputs (*import)(Node&) = nullptr;
};

// The families of operators: the list of rows.cc.
#define ANNEAL_FOR_EACH_OPERATOR_FAMILY(X) \
  X(activation)                            \
  X(attention)                             \
  X(block_weights)                         \
  X(deform)                                \
  X(einsum)                                \
  X(elementwise)                           \
  X(experts)                               \
  X(fused)                                 \
  X(gather)                                \
  X(generate)                              \
  X(group_attention)                       \
  X(image)                                 \
  X(linear)                                \
  X(logical)                               \
  X(loss)                                  \
  X(ml_features)                           \
  X(ml_linear)                             \
  X(ml_svm)                                \
  X(ml_trees)                              \
  X(norm)                                  \
  X(pad)                                   \
  X(pool)                                  \
  X(qlinear)                               \
  X(quant)                                 \
  X(random)                                \
  X(recurrent)                             \
  X(reduce)                                \
  X(resize)                                \
  X(rotary)                                \
  X(sample)                                \
  X(select)                                \
  X(shape)                                 \
  X(signal)                                \
  X(slice)                                 \
  X(squeeze)                               \
  X(state)

#define ANNEAL_DECLARE_ROWS(name) std::span<const OpRow> name##_rows();
ANNEAL_FOR_EACH_OPERATOR_FAMILY(ANNEAL_DECLARE_ROWS)
#undef ANNEAL_DECLARE_ROWS

std::vector<std::span<const OpRow>> all_rows();
const OpRow* find_row(std::string_view domain, std::string_view name, int opset);
// Whether it gives each element from one of each input, broadcast. REQUIRES: row is of the table.
bool is_elementwise(const OpRow& row);
// A row of any opset: tells an unknown operator from an unknown opset.
const OpRow* find_row(std::string_view domain, std::string_view name);

}  // namespace anneal
