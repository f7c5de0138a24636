// Products by weights of a few bits, of which each block along the inner axis has a scale.
#pragma once
#include <string_view>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/importer/node/node.h"

namespace anneal {

// w[N,K] = (code - zero point) * scale.
struct BlockWeights {
  // u8[N, bytes]: codes of `bits` bits (2, 4 or 8), the first one in the low bits. A row begins
  // with a new byte and has whole blocks.
  Tensor codes;
  int64_t bits = 4, block = 0;
  ValueId scales = ValueId::kNone;  // [N, blocks]
  ValueId zeros = ValueId::kNone;   // u8[N, blocks]; kNone: 2^(bits - 1)
};

// Layer of x[.., K] times w transposed: the op and its inputs. Weights of 4 and 2 bits are not
// unpacked where MatMul reads them so. REQUIRES: scales of x's type.
struct ProductLayer {
  MatMul op;
  std::vector<ValueId> inputs;
};
ProductLayer block_product(Node& node, ValueId x, const BlockWeights& weights, bool may_round_x,
                           std::string_view name);

// u8 codes of `bits` bits, a byte for each. dims: of the result, whose last axis is a row, which
// begins with a new byte.
Tensor unpacked_rows(const Tensor& packed, const Dims& dims, int64_t bits);
inline int64_t bytes_of_row(int64_t numbers, int64_t bits) { return (numbers * bits + 7) / 8; }

}  // namespace anneal
