// What tests of tapes and vector programs share: random operands, and what evaluate() makes of
// them.
#pragma once
#include <random>
#include <span>
#include <vector>

#include "anneal/core/isa.h"
#include "anneal/core/tensor.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/cpu/program/tape.h"

namespace anneal::cpu {

std::vector<Isa> isas();  // of those that kernels are compiled for, what this CPU has

// Row-major memory of one type with a view.
struct Array {
  Array(DataType dtype, const Dims& dims)
      : bytes(static_cast<size_t>(anneal::count(dims)) * size_of(dtype)),
        view(row_major_view(dtype, dims, bytes.data())) {}
  std::vector<std::byte> bytes;
  TensorView view;
};

// Numbers of all magnitudes, small integers, and the special ones.
Scalar random_value(DataType dtype, std::mt19937& random);
Array random_array(DataType dtype, const Dims& dims, std::mt19937& random);
// The array's rows without every other element.
TensorView with_gaps(const Array& array, const Dims& dims);

// Element of a view that broadcasts to dims, at an index of dims.
std::byte* element(const TensorView& view, const Dims& index);
Dims index_of(const Dims& dims, int64_t element);

// What a Pointwise layer gives, as scalars, results one after the other.
std::vector<Scalar> expected(const Program& program, std::span<const TensorView> inputs,
                             std::span<const TensorView> outputs);
// Floats may differ by `ulp` units of f32 (f64: exact where ulp is 0).
bool near(RegisterType type, Scalar got, Scalar want, int ulp);
void expect_stored(const Program& program, std::span<const Scalar> want,
                   std::span<const TensorView> outputs, int ulp, Isa isa);

Tape compiled(const Program& program);
void run_elements(const Tape& tape, Isa isa, std::span<const TensorView> inputs,
                  std::span<const TensorView> outputs);
// On random numbers, on all instruction sets. Dense results may run as a vector program, those with
// gaps between elements run in tiles.
void check_program(const Program& program, const Dims& dims, int ulp, std::mt19937& random,
                   bool has_gaps);

bool is_transcendental(Opcode opcode);

}  // namespace anneal::cpu
