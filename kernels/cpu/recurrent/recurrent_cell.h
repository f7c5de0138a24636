// The next state of one sequence from the sums of a step's gates, with SIMD.
//
// All arrays may be read and written up to a whole vector (kCellPadding floats) beyond their end.
// Elements there are never used.
#pragma once
#include <cstdint>

#include "anneal/core/isa.h"
#include "anneal/graph/op/ops.h"

namespace anneal::cpu {

inline constexpr int64_t kCellPadding = 16;

struct CellSettings {
  explicit CellSettings(const Recurrent& op);
  Activation kinds[3] = {};  // of gate, cell and output
  float alphas[3] = {}, betas[3] = {};
  float clip = 0;  // 0: none
  bool input_forget = false;
  bool plain = false;  // sigmoid, tanh and tanh without clip: the fast path
};

struct CellRow {
  int64_t hidden = 0;
  const float* gates = nullptr;      // sums, gate after gate; of GRU z and r
  const float* candidate = nullptr;  // GRU: sums of its h
  const float* recurrent = nullptr;  // GRU: the part of h's sums that r scales; null: none
  const float* peepholes = nullptr;  // LSTM: i, o, f; null: none
  int64_t peephole_stride = 0;
  float* h = nullptr;
  float* c = nullptr;  // LSTM
};

struct CellFunctions {
  void (*rnn)(const CellSettings&, const CellRow&) = nullptr;
  void (*lstm)(const CellSettings&, const CellRow&) = nullptr;
  void (*gru)(const CellSettings&, const CellRow&) = nullptr;
  // r * h, for GRU that resets before the product.
  void (*gru_reset)(const CellSettings&, const CellRow&, float* reset) = nullptr;
};
CellFunctions cell_functions(Isa isa);

}  // namespace anneal::cpu
