#include "product.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace {

// Steps of 1/16 from -1 to 1, in a sequence whose period divides no row.
constexpr int kHalf = 16, kSteps = 2 * kHalf + 1, kPeriod = 4099;

float value_at(int i) { return static_cast<float>(i % kSteps - kHalf) / kHalf; }

// REQUIRES: a multiple of 1/16 in [-1, 1], which f16 holds exactly.
uint16_t f16_bits(float value) {
  if (value == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const int bits = (exponent + 14) * 1024 + static_cast<int>((fraction * 2 - 1) * 1024);
  return static_cast<uint16_t>(bits | (value < 0 ? 0x8000 : 0));
}

double of_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? NAN
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

void fill(std::vector<std::byte>& memory, anneal::DataType type, int factor) {
  std::vector<std::byte> pattern(static_cast<size_t>(kPeriod) * anneal::size_of(type));
  for (int i = 0; i < kPeriod; ++i) {
    const float value = value_at(static_cast<int>(int64_t{i} * i * factor % kPeriod));
    if (type == anneal::DataType::kF32) {
      std::memcpy(&pattern[static_cast<size_t>(i) * 4], &value, 4);
    } else {
      const uint16_t bits = f16_bits(value);
      std::memcpy(&pattern[static_cast<size_t>(i) * 2], &bits, 2);
    }
  }
  for (size_t at = 0; at < memory.size(); at += pattern.size())
    std::memcpy(&memory[at], pattern.data(), std::min(pattern.size(), memory.size() - at));
}

std::string model_of(const Product& product) {
  const std::string type = product.type == anneal::DataType::kF32 ? "f32" : "f16";
  const bool is_own = product.kernel == Kernel::kNaive || product.kernel == Kernel::kTiled;
  return "models/" + (is_own ? to_string(product.kernel) : "matmul") + "_" + type + ".onnx";
}

// cuBLASLt runs where it is faster than a kernel of Anneal's. So the program leaves the slower one
// in, where a build with times stays short, and no kernel of cuDNN.
constexpr int64_t kLargestTimedSimt = 2048;
std::vector<std::string> rivals_left_out(const Product& product) {
  const bool is_small = product.size <= kLargestTimedSimt;
  const bool has_mma = product.type == anneal::DataType::kF16;
  return {"cudnn.matmul", has_mma && !is_small ? "cuda.matmul.simt" : "cuda.matmul.mma"};
}

}  // namespace

std::string to_string(Kernel kernel) {
  switch (kernel) {
    case Kernel::kNaive:
      return "naive";
    case Kernel::kTiled:
      return "tiled";
    case Kernel::kAnneal:
      return "anneal";
    case Kernel::kLibrary:
      return "library";
  }
  return {};
}

ProductEngine make_engine(const Product& product, const std::string& folder) {
  const std::string library = folder + "/products.so";
  const anneal::Dims dims = {product.size, product.size};
  anneal::BuildOptions options;
  options.targets = {product.target};
  options.profiles = {{.min = {{"a", dims}, {"b", dims}}, .max = {{"a", dims}, {"b", dims}}}};
  options.allow_fallback = false;  // of a layer to the CPU
  options.libraries = {library};
  if (product.kernel == Kernel::kLibrary) {
    options.time_kernels = true;
    options.optimization_level = 1;
    options.skip_kernels = rivals_left_out(product);
  }
  anneal::BuiltEngine built = anneal::build_engine(folder + "/" + model_of(product), options);
  ProductEngine result;
  for (const anneal::BuildStep& step : built.report.plans[0].steps)
    if (step.name == "product") result.step_kernel = step.kernel;
  result.file = std::make_shared<const std::vector<std::byte>>(std::move(built.bytes));
  result.engine = anneal::Engine::load(*result.file, result.file,
                                       {.device = product.target, .libraries = {library}});
  return result;
}

Operands::Operands(int64_t size, anneal::DataType type) : size_(size), type_(type) {
  const size_t bytes = static_cast<size_t>(size * size) * anneal::size_of(type);
  for (std::vector<std::byte>* matrix : {&a_, &b_, &c_}) matrix->resize(bytes);
  fill(a_, type, 1);
  fill(b_, type, 3);
}

anneal::TensorView Operands::view(std::vector<std::byte>& memory) const {
  return anneal::row_major_view(type_, {size_, size_}, memory.data());
}

double Operands::at(const std::byte* memory, int64_t i) const {
  if (type_ == anneal::DataType::kF32) {
    float value = 0;
    std::memcpy(&value, memory + i * 4, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, memory + i * 2, 2);
  return of_f16(bits);
}

void Operands::check() const {
  constexpr double kHalfStep = 1.0 / 2048;  // of f16, relative
  for (const int64_t i : {int64_t{0}, size_ / 3, size_ - 1}) {
    for (int64_t j = i % 7; j < size_; j += 1 + size_ / 8) {
      double wanted = 0;
      for (int64_t k = 0; k < size_; ++k)
        wanted += at(a_.data(), i * size_ + k) * at(b_.data(), k * size_ + j);
      const double got = at(c_.data(), i * size_ + j);
      const double allowed = type_ == anneal::DataType::kF32 ? 0 : kHalfStep * std::fabs(wanted);
      if (!(std::fabs(got - wanted) <= allowed))
        throw std::runtime_error("a wrong product: element " + std::to_string(i) + ", " +
                                 std::to_string(j) + " is " + std::to_string(got) + " instead of " +
                                 std::to_string(wanted));
    }
  }
}

void Operands::clear() { std::memset(c_.data(), 0xff, c_.size()); }  // NaN
