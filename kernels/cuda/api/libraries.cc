#include "anneal/kernels/cuda/api/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "anneal/core/library.h"

namespace anneal::cuda {
namespace {

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

std::vector<std::string> folders_of_setting() {
  std::vector<std::string> folders;
  const std::string list = setting("ANNEAL_CUDA_LIB_PATH");
  for (size_t from = 0; from < list.size();) {
    const size_t colon = std::min(list.find(':', from), list.size());
    if (colon > from) folders.push_back(list.substr(from, colon - from));
    from = colon + 1;
  }
  return folders;
}

std::vector<std::string> folders_of_pip() {
  std::vector<std::string> folders;
  for (const std::string& root : {setting("VIRTUAL_ENV"), setting("CONDA_PREFIX"),
                                  setting("HOME").empty() ? "" : setting("HOME") + "/.local",
                                  std::string("/usr/local"), std::string("/usr")}) {
    if (root.empty()) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      for (std::string& folder :
           matches(fmt::format("{}/lib/python3*/{}/nvidia/*/lib", root, packages)))
        folders.push_back(std::move(folder));
  }
  return folders;
}

void add_if_there(const std::string& path, std::vector<std::string>& paths) {
  if (access(path.c_str(), R_OK) == 0) paths.push_back(path);
}

template <class F>
bool find(const Library& library, const char* symbol, F& function) {
  void* const found = library.find(symbol);
  std::memcpy(&function, &found, sizeof(function));
  return function != nullptr;
}

// The name of the first function that is missing; null if none is.
const char* fill(const Library& library, Driver& table) {
#define X(function, symbol, ...) \
  if (!find(library, #symbol, table.function)) return #symbol;
  ANNEAL_FOR_EACH_DRIVER_FUNCTION(X)
#undef X
  return nullptr;
}
#define X(function, ...) \
  if (!find(library, #function, table.function)) return #function;
const char* fill(const Library& library, Nvrtc& table) {
  ANNEAL_FOR_EACH_NVRTC_FUNCTION(X)
  return nullptr;
}
const char* fill(const Library& library, Nvml& table) {
  ANNEAL_FOR_EACH_NVML_FUNCTION(X)
  return nullptr;
}
const char* fill(const Library& library, CublasLt& table) {
  ANNEAL_FOR_EACH_CUBLAS_LT_FUNCTION(X)
  return nullptr;
}
const char* fill(const Library& library, Cudnn& table) {
  ANNEAL_FOR_EACH_CUDNN_FUNCTION(X)
  return nullptr;
}
#undef X

// The file that a function is of.
template <class F>
std::string path_of(F function) {
  void* address = nullptr;
  std::memcpy(&address, &function, sizeof(address));
  Dl_info info = {};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The first library of these names that can be opened and has all functions; `any` is one of the
// functions.
template <class Table, class F>
LibraryTable<Table> open(std::initializer_list<const char*> names, F Table::*any) {
  const std::string first = *names.begin();
  if (setting("ANNEAL_CUDA") == "0")
    return {{}, {}, first + ": ANNEAL_CUDA=0 switches NVIDIA's libraries off"};
  std::string why_not;  // of the first, unless a file was there and would not do
  for (const std::string name : names) {
    for (const std::string& place : places_of(name)) {
      Table table;
      const auto library = Library::open(place);
      const char* const missing = library ? fill(*library, table) : nullptr;
      if (library && missing == nullptr) return {table, path_of(table.*any), {}};
      std::string reason = library.reason();
      if (missing != nullptr) reason = fmt::format("{} has no {}()", place, missing);
      if (why_not.empty() || missing != nullptr || place != name) why_not = reason;
    }
  }
  return {{}, {}, why_not};
}

LibraryTable<Nvrtc> open_nvrtc() {
  // NVRTC of CUDA 12 has every function that we call, and suits drivers older than CUDA 13.
  auto opened = open({"libnvrtc.so.13", "libnvrtc.so.12"}, &Nvrtc::nvrtcVersion);
  if (!opened.table) return opened;
  // NVRTC opens its builtins by name when it first compiles, which the loader refuses where they
  // lie in pip's folders, unless they are open by then.
  int major = 0, minor = 0;
  opened.table->nvrtcVersion(&major, &minor);
  const std::string folder = opened.path.substr(0, opened.path.rfind('/') + 1);
  for (const std::string& path : matches(fmt::format("{}libnvrtc-builtins.so.{}.*", folder, major)))
    static_cast<void>(Library::open(path));
  return opened;
}

}  // namespace

std::vector<std::string> places_of(const std::string& name) {
  std::vector<std::string> places;
  for (const std::string& folder : folders_of_setting())
    add_if_there(fmt::format("{}/{}", folder, name), places);
  places.push_back(name);
  add_if_there("/usr/local/cuda/lib64/" + name, places);
  for (const std::string& folder : folders_of_pip())
    add_if_there(fmt::format("{}/{}", folder, name), places);
  return places;
}

const LibraryTable<Driver>& driver_library() {
  static const LibraryTable<Driver> opened = open({"libcuda.so.1"}, &Driver::cuInit);
  return opened;
}
const LibraryTable<Nvrtc>& nvrtc_library() {
  static const LibraryTable<Nvrtc> opened = open_nvrtc();
  return opened;
}
const LibraryTable<Nvml>& nvml_library() {
  static const LibraryTable<Nvml> opened = open_nvml();
  return opened;
}
const LibraryTable<CublasLt>& cublas_lt_library() {
  static const LibraryTable<CublasLt> opened =
      open({"libcublasLt.so.13"}, &CublasLt::cublasLtGetVersion);
  return opened;
}
const LibraryTable<Cudnn>& cudnn_library() {
  static const LibraryTable<Cudnn> opened = open({"libcudnn.so.9"}, &Cudnn::cudnnGetVersion);
  return opened;
}

LibraryTable<Nvml> open_nvml() { return open({"libnvidia-ml.so.1"}, &Nvml::nvmlInit_v2); }

}  // namespace anneal::cuda
