// Shared parts of the two probe programs: tables of functions found with dlopen, words of JSON, and
// a device that measures.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#define STR2(x) #x
#define STR(x) STR2(x)
#define MEMBER(f) decltype(&::f) f = nullptr;
#define LOAD(f) f = reinterpret_cast<decltype(f)>(symbol(lib, STR(f)));
#define TABLE(Name, LIST)           \
  struct Name {                     \
    LIST(MEMBER)                    \
    void load(const char* soname) { \
      void* lib = open(soname);     \
      LIST(LOAD)                    \
    }                               \
  };
// clang-format off
#define CU(X) \
  X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemAlloc) X(cuMemFree) \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemsetD32Async) X(cuCtxSynchronize) X(cuEventCreate) \
  X(cuEventRecord) X(cuEventElapsedTime) X(cuEventSynchronize)
// clang-format on

inline void* open(const char* name) {
  void* lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!lib) throw std::runtime_error(dlerror());
  return lib;
}
inline void* symbol(void* lib, const char* name) {
  void* f = dlsym(lib, name);
  if (!f) throw std::runtime_error(dlerror());
  return f;
}
// Opens what the colon list PROBE_LIBS names, in that order.
inline void open_listed() {
  std::stringstream libs(std::getenv("PROBE_LIBS") ? std::getenv("PROBE_LIBS") : "");
  for (std::string path; std::getline(libs, path, ':');) open(path.c_str());
}
TABLE(Cuda, CU)

inline std::string quote(const std::string& text) {
  std::string out = "\"";
  for (char c : text)
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else
      out += (c >= 32 && c < 127) ? c : ' ';
  return out + "\"";
}
inline std::string join(const std::vector<std::string>& items, const char* brackets) {
  std::string out(1, brackets[0]);
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ",\n" : "") + items[i];
  return out + brackets[1];
}
inline std::string number(double v) {
  if (!std::isfinite(v)) return "null";
  char text[32];
  snprintf(text, sizeof text, "%.5g", v);
  return text;
}
inline double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline constexpr size_t kFlushBytes = size_t{2} << 30;

struct Device {
  Cuda cu;
  CUdeviceptr flush = 0;  // a long memset hides launch costs and empties L2 before each timing
  CUevent begin = nullptr, end = nullptr;

  void check(CUresult r, const char* what) {
    if (r) throw std::runtime_error(std::string(what) + ": CUDA driver error " + std::to_string(r));
  }
  void start() {
    CUcontext context;
    cu.load("libcuda.so.1");
    check(cu.cuInit(0), "cuInit");
    check(cu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cu.cuMemAlloc(&flush, kFlushBytes), "cuMemAlloc");
    check(cu.cuEventCreate(&begin, 0), "cuEventCreate");
    check(cu.cuEventCreate(&end, 0), "cuEventCreate");
  }
  CUdeviceptr allocate(size_t bytes, const void* from = nullptr) {
    CUdeviceptr p;
    check(cu.cuMemAlloc(&p, bytes), "cuMemAlloc");
    if (from) check(cu.cuMemcpyHtoD(p, from, bytes), "cuMemcpyHtoD");
    return p;
  }
  // The mean of `runs` launches after three that warm up.
  double time_us(const std::function<void()>& launch, int runs = 20) {
    cu.cuMemsetD32Async(flush, 0, kFlushBytes / 4, nullptr);
    for (int i = 0; i < 3; ++i) launch();
    cu.cuEventRecord(begin, nullptr);
    for (int i = 0; i < runs; ++i) launch();
    cu.cuEventRecord(end, nullptr);
    check(cu.cuEventSynchronize(end), "timing");
    float ms = 0;
    cu.cuEventElapsedTime(&ms, begin, end);
    return 1000.0 * ms / runs;
  }
};
