// Parameters of quantized operands, for operators that contain quantized products.
#pragma once
#include <string_view>

#include "anneal/importer/node/node.h"

namespace anneal {

// The input; a vector of one element as a scalar.
ValueId scalar_if_one(Node& node, int index, std::string_view suffix);
// Zero points of a product: a scalar, or a vector of one for each row of a or column of b; kNone if
// the input is absent.
ValueId product_zero_point(Node& node, int index, std::string_view suffix);
// A Cast to a float of 8 or 4 bits, which is f32 here. element_type: that of ONNX.
Outputs cast_to_minifloat(Node& node, int32_t element_type, bool saturates);

}  // namespace anneal
