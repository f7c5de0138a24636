// Conversion of ONNX element types and tensors.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "anneal/core/tensor.h"

namespace anneal_onnx {
class TensorProto;
}  // namespace anneal_onnx

namespace anneal {

inline constexpr int32_t kLastOnnxType = 26;  // of those with names

// element_type: a number of ONNX's TensorProto.DataType.
std::optional<DataType> dtype_from_onnx(int32_t element_type);  // nullopt if we do not have it
std::string onnx_type_name(int32_t element_type);               // "float8e4m3fn", "number 99"
// Fails with kUnsupported naming the type, with kInvalidModel if it is undefined.
DataType require_dtype(int32_t element_type);

// Whether tensors have another type here: i8 or u8 for integers of 4 and 2 bits, f32 for floats of
// 8 and 4 bits. ONNX stores several elements of less than 8 bits in a byte.
bool is_narrow(int32_t element_type);
// The type of the tensor that to_tensor() makes from constants of that type.
std::optional<DataType> dtype_of_constant(int32_t element_type);

// folder: where external data may lie; empty: none is allowed. Nothing is allocated before the data
// is known to be there. Narrow types become others. Fails with kInvalidModel or
// kUnsupported; the caller names the tensor. owner: of the proto; large tensors share its memory.
// Null: none do.
Tensor to_tensor(const anneal_onnx::TensorProto& proto, const std::string& folder,
                 const std::shared_ptr<const void>& owner = nullptr);

}  // namespace anneal
