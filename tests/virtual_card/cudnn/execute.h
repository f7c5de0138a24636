// What an operation graph of the fake cuDNN computes.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "anneal/tests/virtual_card/cudnn/graph.h"

namespace anneal::fake_cudnn {

// Memory of a tensor: its elements by their strides.
using TensorMemory = std::map<int64_t, std::byte*>;

// Bytes of a tensor that are elements: rows from the first byte on, each pitch bytes behind the one
// before it.
struct ElementRows {
  size_t offset = 0, bytes = 0, rows = 1, pitch = 0;
};
std::vector<ElementRows> rows_of(const Tensor& tensor);

// Runs all operations. `memory` has each tensor that is not virtual, by its uid. Sums are done in
// f64, and each result is rounded to its tensor's type.
void execute(const OperationGraph& graph, const TensorMemory& memory);

// Dense elements in row-major order, as f64.
using Elements = std::vector<double>;
Elements read_elements(const Tensor& tensor, const std::byte* memory);
void write_elements(const Tensor& tensor, const Elements& elements, std::byte* memory);
// As reading what was written gives it.
void round_to(DataType type, Elements& elements);

// c[m][n] += a[m][k] * b[k][n]
void add_product(size_t m, size_t n, size_t k, const double* a, const double* b, double* c);

Elements convolution(const Operation& operation, const Tensor& x, const Tensor& w, const Tensor& y,
                     const Elements& x_elements, const Elements& w_elements);
// The elements of x, made of y.
Elements transposed_convolution(const Operation& operation, const Tensor& x, const Tensor& w,
                                const Tensor& y, const Elements& y_elements,
                                const Elements& w_elements);

}  // namespace anneal::fake_cudnn
