// A convolution as a matrix product of input rows, fetched block by block, and packed weights. Conv
// is one product, ConvTranspose one for each position within its stride.
#pragma once
#include <cstdint>
#include <span>

#include "anneal/kernels/cpu/conv/input_rows.h"
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {

// Weights of all groups, as matrices to pack.
struct ConvWeights {
  int64_t groups = 1, group_channels = 0, group_outputs = 0;
  PackLayout layout;  // of one group
  PackSource source;  // of the first group, without data; its first element is at `offset`
  int64_t offset = 0, group_stride = 0;  // in elements
  size_t bytes() const { return layout.bytes() * static_cast<size_t>(groups); }
  int64_t panels() const { return groups * layout.panels(); }
  // One panel of one group. w, zero: the tensors' data; zero may be null.
  void pack(const std::byte* w, const std::byte* zero, int64_t panel, std::byte* to,
            PackTo where = PackTo::kCache) const;
};

// Everything known of one convolution before it runs.
struct ConvPlan {
  Epilogues::Spaces spaces;
  Window window;
  ChannelsLast x;
  ConvWeights weights;
  GemmBlocks blocks;
  bool a_is_direct = false, c_is_direct = false;
  int64_t a_pitch = 0, c_row = 0;
  size_t columns_bytes = 0;                   // shared memory for zero points
  size_t part_bytes = 0;                      // memory of each thread
  size_t c_at = 0, sums_at = 0, tape_at = 0;  // in it
};

// The operands that a run reads; the outputs are those of args.
struct ConvOperands {
  const std::byte* x = nullptr;  // with adjacent channels
  DataType x_dtype = DataType::kF32;
  const std::byte* packed = nullptr;
  TensorView x_zero, w_zero;
  std::byte* columns = nullptr;  // columns_bytes of it
  std::byte* parts = nullptr;    // part_bytes for each thread
};

class ConvGemm {
 public:
  ConvGemm(DataType x, Isa isa) : kernels_(gemm_of(x, isa)) {}
  const GemmKernels& kernels() const { return kernels_; }

  // plan.space, window, x and weights are there already.
  void finish(ConvPlan& plan, const Epilogues& epilogues, const TensorView& y, int threads) const;
  void run(const ConvPlan& plan, const Epilogues& epilogues, const ConvOperands& operands,
           const LaunchArgs& args) const;

 private:
  struct Block;
  bool reads_directly(const ConvPlan& plan) const;
  bool compensate(const ConvPlan& plan, const ConvOperands& operands) const;
  void run_block(const ConvPlan& plan, const Epilogues& epilogues, const ConvOperands& operands,
                 const LaunchArgs& args, bool has_w_zero, int64_t item, std::byte* memory) const;

  GemmKernels kernels_;
};

}  // namespace anneal::cpu
