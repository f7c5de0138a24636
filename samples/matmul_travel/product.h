// One matrix product of N x N elements: its engine, its operands and the check of its result.
#pragma once
#include <anneal/anneal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Which kernel computes the product on a GPU.
enum class Kernel {
  kNaive,    // NaiveMatMul of products.c
  kTiled,    // TiledMatMul of products.c
  kAnneal,   // the kernel that Anneal plans without times
  kLibrary,  // cuBLASLt, which only measured times choose
};
std::string to_string(Kernel kernel);  // "naive"

struct Product {
  int64_t size;
  anneal::DataType type;  // kF32 or kF16
  Kernel kernel = Kernel::kAnneal;
  std::string target = "cpu";  // of the build, and the device of the engine: "cuda", "emulated"
};

// An engine of one product, and the name of the kernel that Anneal took: "cuda.matmul.mma".
struct ProductEngine {
  std::shared_ptr<const std::vector<std::byte>> file;
  std::shared_ptr<const anneal::Engine> engine;
  std::string step_kernel;
};

// folder: of products.so and models/.
ProductEngine make_engine(const Product& product, const std::string& folder);

// a and b, and memory for c, in host memory. Elements are multiples of 1/16 in [-1, 1], so sums of
// 8192 products are exact in f32, in any order.
class Operands {
 public:
  Operands(int64_t size, anneal::DataType type);

  anneal::TensorView a() { return view(a_); }
  anneal::TensorView b() { return view(b_); }
  anneal::TensorView c() { return view(c_); }
  size_t bytes() const { return a_.size(); }  // of one matrix
  // Computes elements of three rows of c in f64. Fails if one differs by more than its type rounds.
  void check() const;
  void clear();  // c

 private:
  anneal::TensorView view(std::vector<std::byte>& memory) const;
  double at(const std::byte* memory, int64_t i) const;

  int64_t size_;
  anneal::DataType type_;
  std::vector<std::byte> a_, b_, c_;
};
