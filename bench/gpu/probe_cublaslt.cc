// Which cuBLASLt algorithms this GPU offers for a matrix product with an epilogue, and how fast, as
// JSON on stdout. Started by probe.py:  probe_cublaslt gemm TYPE | load SECONDS Row-major D[m,n] =
// act(alpha * X[m,k] * W[n,k]^T + bias[n]), which is "TN" in cuBLASLt's column-major words.
#include <cublasLt.h>

#include <cstdint>

#include "anneal/bench/gpu/probe_device.h"

// clang-format off
#define LT(X) \
  X(cublasLtCreate) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoConfigGetAttribute) \
  X(cublasLtGetStatusString)
// clang-format on

TABLE(CublasLt, LT)

struct Types {
  const char* name;
  cudaDataType_t in, out;
  cublasComputeType_t compute;
  cudaDataType_t scale, bias;
};
static const Types kTypes[] = {
    {"f16", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F},
    {"bf16", CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF},
    {"f32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F},
    {"tf32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F},
    {"i8->i32", CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_32I},
    {"i8->i8", CUDA_R_8I, CUDA_R_8I, CUBLAS_COMPUTE_32I, CUDA_R_32F, CUDA_R_32F},
    {"e4m3->f16", CUDA_R_8F_E4M3, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F},
};
static size_t bytes_of(cudaDataType_t t) {
  return t == CUDA_R_32F || t == CUDA_R_32I ? 4 : t == CUDA_R_8I || t == CUDA_R_8F_E4M3 ? 1 : 2;
}
static double element(cudaDataType_t t, const void* base, size_t i) {
  auto bits = [&](int exponent, int mantissa,
                  uint32_t v) {  // an IEEE-like number without infinities
    int e = (v >> mantissa) & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1;
    double m = v & ((1u << mantissa) - 1), scale = std::ldexp(1.0, -mantissa);
    double x = e ? std::ldexp(1 + m * scale, e - bias) : std::ldexp(m * scale, 1 - bias);
    return (v >> (mantissa + exponent)) & 1 ? -x : x;
  };
  if (t == CUDA_R_32F) return static_cast<const float*>(base)[i];
  if (t == CUDA_R_32I) return static_cast<const int32_t*>(base)[i];
  if (t == CUDA_R_8I) return static_cast<const int8_t*>(base)[i];
  if (t == CUDA_R_8F_E4M3) return bits(4, 3, static_cast<const uint8_t*>(base)[i]);
  return t == CUDA_R_16F ? bits(5, 10, static_cast<const uint16_t*>(base)[i])
                         : bits(8, 7, static_cast<const uint16_t*>(base)[i]);
}
struct Epilogue {
  const char* name;
  cublasLtEpilogue_t value;
};
static const Epilogue kEpilogues[] = {{"DEFAULT", CUBLASLT_EPILOGUE_DEFAULT},
                                      {"BIAS", CUBLASLT_EPILOGUE_BIAS},
                                      {"RELU_BIAS", CUBLASLT_EPILOGUE_RELU_BIAS},
                                      {"GELU_BIAS", CUBLASLT_EPILOGUE_GELU_BIAS}};
static const size_t kWorkspace = size_t{32} << 20;

struct GemmProbe : Device {
  CublasLt lt;
  cublasLtHandle_t handle = nullptr;
  CUdeviceptr workspace = 0;
  uint64_t state = 1;  // of the random numbers

  using Device::check;
  void check(cublasStatus_t s, const char* what) {
    if (s) throw std::runtime_error(std::string(what) + ": " + lt.cublasLtGetStatusString(s));
  }
  void open_library() {
    start();
    lt.load("libcublasLt.so.13");
    check(lt.cublasLtCreate(&handle), "cublasLtCreate");
    workspace = allocate(kWorkspace);
  }
  std::vector<uint32_t> random_words(cudaDataType_t t,
                                     size_t count) {  // +-[0.5, 1), or any int8
    uint32_t keep = ~0u, add = 0;
    if (t == CUDA_R_16F) keep = 0x83ff83ff, add = 0x38003800;
    if (t == CUDA_R_16BF) keep = 0x807f807f, add = 0x3f003f00;
    if (t == CUDA_R_32F) keep = 0x807fffff, add = 0x3f000000;
    if (t == CUDA_R_32I) keep = 0xff, add = 0;
    if (t == CUDA_R_8F_E4M3) keep = 0x87878787, add = 0x30303030;
    std::vector<uint32_t> out((count * bytes_of(t) + 3) / 4);
    for (auto& w : out)
      state = state * 6364136223846793005u + 1442695040888963407u,
      w = (static_cast<uint32_t>(state >> 32) & keep) | add;
    return out;
  }
  void gemm(const Types& t, int m, int n, int k, int timed, double load_seconds,
            std::vector<std::string>& rows) {
    auto x = random_words(t.in, size_t(m) * k), w = random_words(t.in, size_t(n) * k),
         bias = random_words(t.bias, n);
    CUdeviceptr dx = allocate(x.size() * 4, x.data()), dw = allocate(w.size() * 4, w.data()),
                db = allocate(bias.size() * 4, bias.data());
    CUdeviceptr dd = allocate(size_t(m) * n * bytes_of(t.out) + 16);
    const double alpha = t.scale == CUDA_R_32I
                             ? 1
                             : (t.in == CUDA_R_8I ? 32.0 / (73 * 73) : 1) / std::sqrt(double(k));
    const float alpha_f = float(alpha), zero = 0;
    const int32_t alpha_i = 1;
    const void* pa = t.scale == CUDA_R_32I ? static_cast<const void*>(&alpha_i) : &alpha_f;
    for (const Epilogue& epilogue : kEpilogues) {
      std::ostringstream row;
      row << "{\"type\":" << quote(t.name) << ",\"m\":" << m << ",\"n\":" << n << ",\"k\":" << k
          << ",\"epilogue\":" << quote(epilogue.name);
      try {
        cublasLtMatmulDesc_t desc;
        cublasLtMatrixLayout_t lw, lx, ld;
        cublasLtMatmulPreference_t pref;
        cublasOperation_t transposed = CUBLAS_OP_T;
        check(lt.cublasLtMatmulDescCreate(&desc, t.compute, t.scale), "desc");
        lt.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof transposed);
        lt.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.value,
                                          sizeof epilogue.value);
        if (epilogue.value != CUBLASLT_EPILOGUE_DEFAULT) {
          lt.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &db,
                                            sizeof db);
          check(lt.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                  &t.bias, sizeof t.bias),
                "bias type");
        }
        check(lt.cublasLtMatrixLayoutCreate(&lw, t.in, k, n, k), "layout");
        check(lt.cublasLtMatrixLayoutCreate(&lx, t.in, k, m, k), "layout");
        check(lt.cublasLtMatrixLayoutCreate(&ld, t.out, n, m, n), "layout");
        check(lt.cublasLtMatmulPreferenceCreate(&pref), "preference");
        lt.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &kWorkspace, sizeof kWorkspace);
        std::vector<cublasLtMatmulHeuristicResult_t> found(32);
        int count = 0;
        double start = now_ms();
        check(lt.cublasLtMatmulAlgoGetHeuristic(handle, desc, lw, lx, ld, ld, pref, 32,
                                                found.data(), &count),
              "heuristic");
        row << ",\"count\":" << count << ",\"heuristic_ms\":" << number(now_ms() - start)
            << ",\"algos\":[";
        for (int i = 0; i < count && i < timed; ++i) {
          auto launch = [&] {
            return lt.cublasLtMatmul(
                handle, desc, pa, reinterpret_cast<void*>(dw), lw, reinterpret_cast<void*>(dx), lx,
                &zero, reinterpret_cast<void*>(dd), ld, reinterpret_cast<void*>(dd), ld,
                &found[i].algo, reinterpret_cast<void*>(workspace), kWorkspace, nullptr);
          };
          row << (i ? ",\n[" : "[");
          for (int a = 0; a < 9; ++a) {  // id, tile, split-k, reduction, swizzle, custom, stages,
                                         // inner shape, cluster shape
            uint32_t v = 0;              // the last two are 16 bits wide
            lt.cublasLtMatmulAlgoConfigGetAttribute(
                &found[i].algo, static_cast<cublasLtMatmulAlgoConfigAttributes_t>(a), &v,
                a < 7 ? 4 : 2, nullptr);
            row << v << ",";
          }
          cublasStatus_t status = launch();
          double us =
              status ? 0
                     : time_us(launch,
                               load_seconds > 0 ? int(load_seconds * 1e6 / time_us(launch)) : 20);
          row << found[i].workspaceSize << "," << number(status ? NAN : us) << ","
              << number(2e-6 * m * n * k / us) << "]";
        }
        row << "]";
        if (count &&
            timed > 1) {  // 64 places of the last algorithm's result against double arithmetic
          std::vector<uint8_t> d(size_t(m) * n * bytes_of(t.out));
          check(cu.cuMemcpyDtoH(d.data(), dd, d.size()), "cuMemcpyDtoH");
          double worst = 0, worst_tanh = 0;
          for (size_t s = 0; s < 64; ++s) {
            size_t i = s * 7919 % m, j = s * 104729 % n;
            double sum = 0;
            for (size_t q = 0; q < size_t(k); ++q)
              sum += element(t.in, x.data(), i * k + q) * element(t.in, w.data(), j * k + q);
            double v = alpha * sum + (epilogue.value == CUBLASLT_EPILOGUE_DEFAULT
                                          ? 0
                                          : element(t.bias, bias.data(), j)),
                   u = v;
            if (epilogue.value == CUBLASLT_EPILOGUE_RELU_BIAS) u = v = v > 0 ? v : 0;
            if (epilogue.value == CUBLASLT_EPILOGUE_GELU_BIAS)
              u = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))),
              v = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
            if (t.out == CUDA_R_8I) u = v = std::fmax(-128, std::fmin(127, std::nearbyint(v)));
            double got = element(t.out, d.data(), i * n + j);
            if (!(std::fabs(got - v) <= worst))
              worst = std::fabs(got - v);  // so that a NaN is not lost
            if (!(std::fabs(got - u) <= worst_tanh)) worst_tanh = std::fabs(got - u);
          }
          row << ",\"max_error\":" << number(worst);
          if (epilogue.value == CUBLASLT_EPILOGUE_GELU_BIAS)
            row << ",\"max_error_tanh_gelu\":" << number(worst_tanh);
        }
      } catch (const std::exception& e) {
        row << ",\"error\":" << quote(e.what());
      }
      rows.push_back(row.str() + "}");
      if (load_seconds > 0) break;
    }
    for (CUdeviceptr p : {dx, dw, db, dd}) cu.cuMemFree(p);
  }
};

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("arguments: see the top of the source");
  open_listed();
  GemmProbe probe;
  probe.open_library();
  std::vector<std::string> rows;
  const int shapes[][3] = {
      {4096, 4096, 4096}, {512, 3072, 768}, {32, 1000, 2048}, {8192, 2304, 768}};
  if (std::string(argv[1]) == "load")
    probe.gemm(kTypes[1], 8192, 8192, 8192, 1, std::atof(argv[2]), rows);
  else
    for (const Types& t : kTypes)
      for (auto& s : shapes)
        if (std::string(argv[2]) == t.name) probe.gemm(t, s[0], s[1], s[2], 5, 0, rows);
  printf("{\"cublaslt_version\":%zu,\"rows\":%s}\n", probe.lt.cublasLtGetVersion(),
         join(rows, "[]").c_str());
} catch (const std::exception& e) {
  printf("{\"error\":%s}\n", quote(e.what()).c_str());
}
