"""Two small kernels compiled with NVRTC, with or without a GPU, and run through the driver: the probe's own device code."""
import ctypes as C, math, struct, sysconfig, time
from pathlib import Path

SITE, TOOLKIT = Path(sysconfig.get_paths()["purelib"]) / "nvidia", Path("/usr/local/cuda")
SONAMES = ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"]  # in loading order
KERNELS = r'''
__device__ float f32(unsigned short h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ unsigned short f16(float f) { unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
extern "C" __global__ void scale_bias_silu(const unsigned short* x, const unsigned short* bias, unsigned short* y, float s, int n, int c) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float v = f32(x[i]) * s + f32(bias[i % c]);
    y[i] = f16(v / (1.f + __expf(-v)));
  }
}
extern "C" __global__ void mma_tile(const unsigned* a, const unsigned* b, float* d, int k) {  // D[16,8] = A[16,k] B[8,k]^T, one warp
  int g = threadIdx.x / 4, t = threadIdx.x % 4, row = k / 2;
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  for (int i = 0; i < row; i += 8)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a[g * row + i + t]), "r"(a[(g + 8) * row + i + t]), "r"(a[g * row + i + t + 4]), "r"(a[(g + 8) * row + i + t + 4]),
          "r"(b[g * row + i + t]), "r"(b[g * row + i + t + 4]));
  d[g * 8 + 2 * t] = c0; d[g * 8 + 2 * t + 1] = c1; d[(g + 8) * 8 + 2 * t] = c2; d[(g + 8) * 8 + 2 * t + 1] = c3;
}
'''

def library(soname):
    for folder in (SITE / "cu13/lib", SITE / "cudnn/lib", TOOLKIT / "lib64"):
        if (folder / soname).exists(): return str(folder / soname)
    return soname

def nvrtc(arch, load=SONAMES[:2]):
    """Compiles KERNELS for 'sm_90' (a cubin) or 'compute_80' (PTX) with the last library of `load`; gives bytes and milliseconds."""
    lib = [C.CDLL(library(name), C.RTLD_GLOBAL) for name in load][-1]
    program, size, start = C.c_void_p(), C.c_size_t(), time.perf_counter()
    lib.nvrtcCreateProgram(C.byref(program), KERNELS.encode(), b"probe.cu", 0, None, None)
    status = lib.nvrtcCompileProgram(program, 1, (C.c_char_p * 1)(f"-arch={arch}".encode()))
    kind = "PTX" if arch.startswith("compute") else "CUBIN"
    getattr(lib, "nvrtcGetProgramLogSize" if status else f"nvrtcGet{kind}Size")(program, C.byref(size))
    text = C.create_string_buffer(size.value)
    getattr(lib, "nvrtcGetProgramLog" if status else f"nvrtcGet{kind}")(program, text)
    if status: raise RuntimeError(f"nvrtc status {status}: {text.value.decode()}")
    return text.raw, round((time.perf_counter() - start) * 1e3, 1)

def cuda(name, *args):
    status = getattr(C.CDLL("libcuda.so.1"), name)(*args)
    if status: raise RuntimeError(f"{name}: CUDA driver error {status}")

def run_kernels(image):
    """Loads a cubin or PTX through the driver, runs both kernels and compares every number with Python's."""
    context, module, function, start = C.c_void_p(), C.c_void_p(), C.c_void_p(), time.perf_counter()
    cuda("cuInit", 0); cuda("cuDevicePrimaryCtxRetain", C.byref(context), 0); cuda("cuCtxSetCurrent", context)
    cuda("cuModuleLoadData", C.byref(module), image + b"\0")
    result = {"load_ms": round((time.perf_counter() - start) * 1e3, 2)}
    def device(data):
        p = C.c_uint64(); cuda("cuMemAlloc_v2", C.byref(p), C.c_size_t(len(data))); cuda("cuMemcpyHtoD_v2", p, data, C.c_size_t(len(data)))
        return p
    def launch(name, grid, block, args, out, layout):
        cuda("cuModuleGetFunction", C.byref(function), module, name.encode())
        packed = (C.c_void_p * len(args))(*(C.cast(C.byref(a), C.c_void_p) for a in args))
        cuda("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, packed, None)
        host = C.create_string_buffer(struct.calcsize(layout)); cuda("cuMemcpyDtoH_v2", host, out, C.c_size_t(len(host)))
        return struct.unpack(layout, host.raw)
    n, c, k = 65537, 96, 64
    halves = lambda count, step: struct.unpack(f"{count}e", struct.pack(f"{count}e", *((i * step % 257 - 128) / 64 for i in range(count))))
    x, bias, a, b = halves(n, 37), halves(c, 11), halves(16 * k, 29), halves(8 * k, 53)
    px, pb, py = (device(struct.pack(f"{len(v)}e", *v)) for v in (x, bias, x))
    got = launch("scale_bias_silu", 64, 256, [px, pb, py, C.c_float(0.5), C.c_int(n), C.c_int(c)], py, f"{n}e")
    want = [v / (1 + math.exp(-v)) for v in (x[i] * 0.5 + bias[i % c] for i in range(n))]
    result["scale_bias_silu_max_error"] = max(abs(g - w) for g, w in zip(got, want))
    pa, pb, pd = device(struct.pack(f"{len(a)}e", *a)), device(struct.pack(f"{len(b)}e", *b)), device(bytes(512))
    got = launch("mma_tile", 1, 32, [pa, pb, pd, C.c_int(k)], pd, "128f")
    result["mma_tile_max_error"] = max(abs(got[i * 8 + j] - sum(a[i * k + q] * b[j * k + q] for q in range(k))) for i in range(16) for j in range(8))
    return result
