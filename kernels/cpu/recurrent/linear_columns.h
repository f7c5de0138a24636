// LinearAttention of kStateColumns columns of a head's state, which take no part in those of
// others, with SIMD.
#pragma once
#include <cstdint>

#include "anneal/core/isa.h"

namespace anneal::cpu {

inline constexpr int64_t kStateColumns = 32;

// A vector of each position. data null: there is none.
struct PositionRows {
  const float* data = nullptr;
  int64_t step = 0;  // floats from one position to the next
};

// Rows of kStateColumns numbers.
struct StateRows {
  float* data = nullptr;
  int64_t pitch = kStateColumns;  // floats from one row to the next
};

struct LinearColumns {
  int64_t positions = 1;
  int64_t rows = 0;  // of the state: the width of keys and queries
  // Before the first position and after the last one, and between them. Any two may be the same.
  StateRows first, last, between;
  PositionRows q, k, v;
  PositionRows decay;  // one number; decay_is_by_row: `rows` numbers
  bool decay_is_by_row = false;
  PositionRows beta;                // one number
  int64_t readers = 1;              // heads of queries that read the state
  int64_t reader_step = 0;          // floats from one of their queries to the next
  float* y = nullptr;               // `columns` numbers of the first reader
  int64_t y_step = 0;               // from one position to the next
  int64_t y_reader_step = 0;        // and from one reader to the next
  int64_t columns = kStateColumns;  // of v and y
  float scale = 1;
  float* scratch = nullptr;  // linear_columns_scratch() floats
};

int64_t linear_columns_scratch(int64_t rows);  // floats, read and written only by decay_is_by_row

// Takes the state through all positions, and computes y. REQUIRES: positions > 0
using LinearColumnsFunction = void (*)(const LinearColumns&);
LinearColumnsFunction linear_columns(Isa isa);

}  // namespace anneal::cpu
