// Kernels of a function with a generated store that takes vectors: MatMul, Conv, Pool.
#pragma once
#include <optional>

#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

// Without looks. `vectors` of the op, and behind add_functions() the store's.
struct FusedProductParts : FunctionParts {
  std::optional<StoreText> store;  // none: the outputs are plain parameters
};

// Adds the text twice. `aligned` is a constant in it (bit i: vectors[i] may be read at once), and
// so is `store_aligned`, for the store's vectors: all bits are set in one function, none in the
// other, and each launch takes the one that its memory allows. A plan knows most addresses and
// passes them to know_alignments(), which leaves one function: weights and arena slots are aligned,
// and so are views at offsets of whole vectors. Both stay for views at offsets that are known only
// at run time, and for strides of unknown sizes that may be no whole vectors.
void add_functions(FusedProductParts& parts, const Request& request, const FunctionText& text);

// The maker of a kernel on tensor cores, from one for either kind of cores.
template <class T, KernelResult (*make)(const T&, const Request&, bool on_tensor_cores)>
KernelResult make_on_tensor_cores(const T& op, const Request& request) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype != DataType::kF16 && dtype != DataType::kBF16 && size_of(dtype) != 1)
    return refuse("only f16, bf16 and 8 bits");
  return make(op, request, true);
}

// Those of the tactics that the entry's maker takes for the request, in their order.
std::vector<Tactic> accepted_tactics(const Request& request,
                                     KernelResult (*make)(const Request& request),
                                     std::vector<Tactic> (*list)(const Request& request));
// An entry whose tactics `list` gives for a request that the maker takes; it may give others, too.
template <class T, KernelResult (*make)(const T&, const Request&),
          std::vector<Tactic> (*list)(const T&, const Request&)>
constexpr KernelEntry tactics_entry(std::string_view name, Layout prefers) {
  KernelEntry made = entry<T, make>(name, prefers);
  made.tactics = [](const Request& request) {
    return accepted_tactics(
        request, [](const Request& asked) { return make(std::get<T>(asked.op), asked); },
        [](const Request& asked) { return list(std::get<T>(asked.op), asked); });
  };
  return made;
}

// The kernel of these parts, whose inputs are the op's: those of the store come behind. Refuses if
// a launch cannot take that many arguments.
KernelResult make_fused_product(FusedProductParts parts, const Request& request);

// Blocks in one row. Fails with kUnsupported if a grid cannot have as many.
Geometry blocks_of(int64_t blocks, int threads, int shared_bytes = 0);

}  // namespace anneal::cuda
