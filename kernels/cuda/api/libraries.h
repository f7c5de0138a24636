// NVIDIA's libraries as tables of functions. They are opened at first use, stay open until the
// process ends, and are never linked. If one is missing, the first use returns a sentence that says
// so.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/api/cublas_lt_api.h"
#include "anneal/kernels/cuda/api/cuda_api.h"
#include "anneal/kernels/cuda/api/cudnn_api.h"
#include "anneal/kernels/cuda/api/driver.h"

namespace anneal::cuda {

#define X(function, result, ...) result (*function)(__VA_ARGS__) = nullptr;
struct Nvrtc {
  ANNEAL_FOR_EACH_NVRTC_FUNCTION(X)
};
struct Nvml {
  ANNEAL_FOR_EACH_NVML_FUNCTION(X)
};
struct CublasLt {
  ANNEAL_FOR_EACH_CUBLAS_LT_FUNCTION(X)
};
struct Cudnn {
  ANNEAL_FOR_EACH_CUDNN_FUNCTION(X)
};
#undef X

// A table, and the file it was filled from; or why there is none.
template <class Table>
struct LibraryTable {
  std::optional<Table> table;
  std::string path;
  std::string why_not;  // "libcuda.so.1: cannot open shared object file: No such file or directory"
};

// The first call opens the library, later calls return its result. Thread-safe.
const LibraryTable<Driver>& driver_library();
const LibraryTable<Nvrtc>& nvrtc_library();
const LibraryTable<Nvml>& nvml_library();
const LibraryTable<CublasLt>& cublas_lt_library();
const LibraryTable<Cudnn>& cudnn_library();

// The arguments for the loader, in this order: files in the folders of ANNEAL_CUDA_LIB_PATH; the
// name alone, for a library that the process has opened before and for the loader's own places;
// files in the toolkit's folder and where pip puts NVIDIA's packages.
std::vector<std::string> places_of(const std::string& name);

// Looks anew.
LibraryTable<Nvml> open_nvml();

}  // namespace anneal::cuda
