// Faults planted in device functions, each found with its function and line.
#include <gmock/gmock.h>

#include <algorithm>

#include "anneal/tests/cuda/target_under_test.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

using testing::HasSubstr;

constexpr int kElements = 1000;

struct Case {
  std::string name;
  std::string text;  // of a function's body: line 1 is its head
  CUresult result;
  std::vector<std::string> says;
  unsigned threads = 64;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"a read behind the end",
       "  y[threadIdx.x] = x[n - 63 + threadIdx.x];\n",
       CUDA_ERROR_ILLEGAL_ADDRESS,
       {"thread (63, 0, 0) reads 4 bytes: 0 bytes behind an allocation of 4000 bytes",
        "[line 2: y[threadIdx.x] = x[n - 63 + threadIdx.x];]", "block (0, 0, 0)"}},
      {"a read before the start",
       "  const i64 i = threadIdx.x;\n"
       "  y[i] = x[i - 1];\n",
       CUDA_ERROR_ILLEGAL_ADDRESS,
       {"thread (0, 0, 0) reads 4 bytes: 4 bytes before an allocation of 4000 bytes", "[line 3: "}},
      {"a write behind the end",
       "  if (threadIdx.x == 5)\n"
       "    y[n + 1] = 1;\n",
       CUDA_ERROR_ILLEGAL_ADDRESS,
       {"thread (5, 0, 0) accesses 4 bytes: 4 bytes behind an allocation of 4000 bytes",
        "[line 3: y[n + 1] = 1;]"}},
      {"a vector across the end",
       "  store(y, 992, load<16>(x, 0));\n",
       CUDA_ERROR_ILLEGAL_ADDRESS,
       {"accesses 64 bytes: at byte 3968 of an allocation of 4000 bytes", "[line 2: "}},
      {"a vector off its place",
       "  const Vec<f32, 4> v = load<4>(x + 1, 4);\n"
       "  y[0] = v[0];\n",
       CUDA_ERROR_MISALIGNED_ADDRESS,
       {"reads 16 bytes: at byte 20 of", "no multiple of 16", "[line 2: "}},
      {"in a function of a header",
       "  copy_async<16>(SharedArray<f32>{}, 0, x, n);\n",
       CUDA_ERROR_ILLEGAL_ADDRESS,
       {"reads 16 bytes: 0 bytes behind", "[line 2: copy_async"}},
      {"a read behind shared memory",
       "  SHARED(f32, s, 64);\n"
       "  y[threadIdx.x] = s[threadIdx.x + 1];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"no thread has written it", "[line 3: "}},
      {"a write behind shared memory",
       "  SHARED(f32, s, 64);\n"
       "  s[threadIdx.x + 1] = 1;\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"thread (63, 0, 0) accesses 4 bytes at byte 256 of shared s, which has 256", "[line 3: "}},
      {"a read before shared memory",
       "  SHARED(f32, s, 64);\n"
       "  y[0] = s[i32(threadIdx.x) - 1];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"accesses 4 bytes at byte -4 of shared s", "[line 3: "}},
      {"a vector off its place in shared memory",
       "  SHARED(f32, s, 64);\n"
       "  s[threadIdx.x] = 1;\n"
       "  __syncthreads();\n"
       "  y[0] = load<4>(s, 2)[0];\n",
       CUDA_ERROR_MISALIGNED_ADDRESS,
       {"reads 16 bytes at byte 8 of shared s, which is not aligned", "[line 5: "}},
      {"more shared memory than there is",
       "  SHARED(f64, s, 6145);\n"
       "  s[0] = 1;\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"declares 49160 bytes of shared memory", "[line 2: "}},
      {"no barrier between a write and a read",
       "  SHARED(f32, s, 64);\n"
       "  s[threadIdx.x] = 1;\n"
       "  y[threadIdx.x] = s[63 - threadIdx.x];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"of shared s, but ", "[line 4: "}},
      {"no barrier between a read and a write",
       "  SHARED(f32, s, 64);\n"
       "  s[threadIdx.x] = 1;\n"
       "  __syncthreads();\n"
       "  y[threadIdx.x] = s[63 - threadIdx.x];\n"
       "  s[threadIdx.x] = 2;\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"shared s, but thread ", " it in line ", " with no barrier in between"}},
      {"two writes to one element",
       "  SHARED(h16, s, 64);\n"
       "  s[threadIdx.x / 2] = h16{1};\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"writes 2 bytes at byte ", "wrote it in line 3 with no barrier in between", "[line 3: "}},
      {"no barrier between the lanes of a warp",
       "  SHARED(f32, s, 64);\n"
       "  s[threadIdx.x] = 1;\n"
       "  __shfl_xor_sync(0xffffffff, 1.0f, 1);\n"
       "  y[threadIdx.x] = s[threadIdx.x ^ 1];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"wrote it in line 3 with no barrier in between", "[line 5: "}},
      {"a barrier of a warp between two warps",
       "  SHARED(f32, s, 64);\n"
       "  s[threadIdx.x] = 1;\n"
       "  __syncwarp();\n"
       "  y[threadIdx.x] = s[threadIdx.x ^ 32];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"of shared s, but ", "[line 5: "}},
      {"a read beside atomics",
       "  SHARED(i32, s, 1);\n"
       "  if (threadIdx.x == 0) s[0] = 0;\n"
       "  __syncthreads();\n"
       "  atomic_add(s, 0, 1);\n"
       "  y[threadIdx.x] = s[0];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"thread (1, 0, 0) accesses 4 bytes at byte 0 of shared s, but thread 0 read it in line 6",
        "[line 5: "}},
      {"an atomic on an unwritten element",
       "  SHARED(i32, s, 1);\n"
       "  atomic_add(s, 0, 1);\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"accesses 4 bytes at byte 0 of shared s, but no thread has written it", "[line 3: "}},
      {"half a block at a barrier",
       "  if (threadIdx.x < 16)\n"
       "    __syncthreads();\n"
       "  else\n"
       "    __shfl_sync(0xffffffff, 1, 0);\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"waits for ever: ", "16 of 64 threads wait at __syncthreads [line 3: __syncthreads();]",
        "16 of 64 threads wait at __shfl_sync [line 5: ", "32 are done"}},
      {"two barriers at once",
       "  if (threadIdx.x < 16)\n"
       "    __syncthreads();\n"
       "  else\n"
       "    __syncthreads();\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"16 of 64 threads wait at __syncthreads [line 3: ",
        "48 of 64 threads wait at __syncthreads [line 5: ", "0 are done"}},
      {"a mask without the caller",
       "  __shfl_sync(0xfffffffe, 1, 0);\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"calls __shfl_sync with the mask 0xfffffffe, which does not name its lane 0", "[line 2: "}},
      {"a copy read before it is waited for",
       "  SHARED(f32, s, 256);\n"
       "  copy_async<16>(s, 4 * threadIdx.x, x, 4 * threadIdx.x);\n"
       "  copy_async_commit();\n"
       "  copy_async_wait<1>();\n"
       "  y[threadIdx.x] = s[4 * threadIdx.x];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"began a copy to it in line 3 and has not waited for it", "[line 6: "}},
      {"another's copy read without a barrier",
       "  SHARED(f32, s, 256);\n"
       "  copy_async<16>(s, 4 * threadIdx.x, x, 4 * threadIdx.x);\n"
       "  copy_async_commit();\n"
       "  copy_async_wait<0>();\n"
       "  y[threadIdx.x] = s[(4 * threadIdx.x + 4) % 256];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"of shared s, but ", "[line 6: "}},
      {"a copy off its place",
       "  SHARED(f32, s, 256);\n"
       "  copy_async<16>(s, 2, x, 0);\n",
       CUDA_ERROR_MISALIGNED_ADDRESS,
       {"writes 16 bytes at byte 8 of shared s, which is not aligned", "[line 3: "}},
      {"matrices off their place",
       "  SHARED(h16, s, 2048);\n"
       "  for (i32 i = threadIdx.x; i < 2048; i += 64) s[i] = h16{0};\n"
       "  __syncthreads();\n"
       "  y[threadIdx.x] = ldmatrix_x4(s, threadIdx.x * 8 + 4)[0];\n",
       CUDA_ERROR_MISALIGNED_ADDRESS,
       {"reads 16 bytes at byte 8 of shared s, which is not aligned", "[line 5: "}},
      {"matrices that no thread wrote",
       "  SHARED(h16, s, 2048);\n"
       "  y[threadIdx.x] = ldmatrix_x4(s, threadIdx.x * 8)[0];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"no thread has written it", "[line 3: "}},
      {"a product of half a warp",
       "  Vec<f32, 4> c = {};\n"
       "  const Vec<u32, 4> a = {};\n"
       "  if (threadIdx.x % 32 < 16)\n"
       "    mma_m16n8k16<h16>(c, a, 0, 0);\n"
       "  y[threadIdx.x] = c[0];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"calls mma f16 in a warp of fewer than 32 threads", "[line 5: "}},
      {"an unwritten index",
       "  SHARED(i32, s, 64);\n"
       "  const i32 i = s[threadIdx.x];\n"
       "  y[0] = x[i];\n",
       CUDA_ERROR_LAUNCH_FAILED,
       {"reads 4 bytes at byte ", "of shared s, but no thread has written it", "[line 3: "}},
  };
  return all;
}

// All functions as one program, to save time.
struct LoadedProgram {
  std::vector<std::shared_ptr<const Function>> functions;
  std::vector<std::byte> image;
};
const LoadedProgram& loaded() {
  static const LoadedProgram program = [] {
    LoadedProgram made;
    Code code;
    for (const Case& c : cases())
      made.functions.push_back(
          code.add({"faulty",
                    {"mma.h"},
                    "KERNEL($name, 64)(In<f32> x, Out<f32> y, i64 n) {\n" + c.text + "}"}));
    made.image = compile_once(host_compiler(), program_of(code.functions()), 90);
    return made;
  }();
  return program;
}

class EmulatedFaultTest : public testing::TestWithParam<std::string> {};

TEST_P(EmulatedFaultTest, FindsIt) {
  for (size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    SCOPED_TRACE(c.name);
    EmulatedTarget e(GetParam());
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    const std::string& name = loaded().functions[i]->name;
    EmulatedTarget::check(e.d.cuModuleLoadData(&module, loaded().image.data()));
    EmulatedTarget::check(e.d.cuModuleGetFunction(&function, module, name.c_str()));
    const auto x = e.upload(std::vector<float>(kElements, 1.0f));
    const auto y = e.upload(std::vector<float>(kElements, 1.0f));
    EXPECT_EQ(e.launch(function, 1, c.threads, x, y, int64_t{kElements}), CUDA_SUCCESS);
    EXPECT_EQ(e.wait(), c.result);
    const std::string fault = emulated_fault();
    EXPECT_THAT(fault, testing::StartsWith(name));
    if (GetParam() == "forward") {
      for (const std::string& words : c.says) EXPECT_THAT(fault, HasSubstr(words));
    }
    // As on a card, the context is of no more use.
    size_t free = 0, total = 0;
    EXPECT_EQ(e.d.cuMemGetInfo(&free, &total), c.result);
    EXPECT_EQ(emulated_fault(), fault);
  }
}

TEST_P(EmulatedFaultTest, TheDeviceWorksAgainAfterTheContext) {
  const Case& c = cases()[0];
  for (int round = 0; round < 3; ++round) {
    EmulatedTarget e(GetParam());
    const auto function = e.function(
        "KERNEL($name, 64)(In<f32> x, Out<f32> y, i64 n) {\n"
        "  __syncthreads();\n"
        "  y[threadIdx.x] = x[threadIdx.x + n];\n"
        "}");
    const auto x = e.upload(std::vector<float>(64, 3.0f));
    const auto y = e.allocate(256);
    EXPECT_EQ(e.launch(function, 1, 64, x, y, int64_t{0}), CUDA_SUCCESS);
    EXPECT_THAT(e.download<float>(y, 64), testing::Each(3.0f));
    EXPECT_EQ(e.launch(function, 1, 64, x, y, int64_t{1}), CUDA_SUCCESS);
    EXPECT_EQ(e.wait(), c.result);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, EmulatedFaultTest, testing::Values("forward", "reversed"),
                         [](const auto& info) { return info.param; });

// Cases that NVRTC leaves without the fault: it refuses the first, drops stores to shared memory
// that is not read, and loads of a vector the one element that is used.
constexpr const char* kNotByNvrtc[] = {
    "more shared memory than there is", "a write behind shared memory", "two writes to one element",
    "a vector off its place", "a vector off its place in shared memory"};

// The same functions by NVRTC. The error, and the access that it shows at, may be others.
TEST(DeviceFunctionFaults, AreFoundOnTheVirtualCard) {
  if (is_emulated() || !finds_faults()) GTEST_SKIP() << "it needs the virtual card";
  for (const Case& c : cases()) {
    if (std::ranges::find(kNotByNvrtc, c.name) != std::end(kNotByNvrtc)) continue;
    SCOPED_TRACE(c.name);
    DriverTarget e(driver_under_test(), compiler_under_test());
    const auto function =
        e.function("KERNEL($name, 64)(In<f32> x, Out<f32> y, i64 n) {\n" + c.text + "}", {"mma.h"});
    const auto x = e.upload(std::vector<float>(kElements, 1.0f));
    const auto y = e.upload(std::vector<float>(kElements, 1.0f));
    EXPECT_EQ(e.launch(function, 1, c.threads, x, y, int64_t{kElements}), CUDA_SUCCESS);
    testing::internal::CaptureStderr();
    EXPECT_NE(e.wait(), CUDA_SUCCESS);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("virtual card: f_"));
  }
}

TEST(EmulatedMemoryTest, UseAfterFree) {
  EmulatedTarget e;
  const auto function =
      e.function("KERNEL($name, 64)(In<f32> x, Out<f32> y) { y[threadIdx.x] = x[threadIdx.x]; }");
  const auto x = e.upload(std::vector<float>(64, 1.0f));
  const auto y = e.allocate(256);
  EmulatedTarget::check(e.launch(function, 1, 64, x, y));
  EmulatedTarget::check(e.d.cuMemFree(x));
  EXPECT_EQ(e.wait(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(emulated_fault(),
              HasSubstr("reads 4 bytes: at byte 0 of a freed allocation of 256 bytes"));
}

TEST(EmulatedMemoryTest, MemoryFreedBeforeACopyIsDone) {
  EmulatedTarget e;
  const auto x = e.upload(std::vector<float>(64, 1.0f));
  void* pinned = nullptr;
  EmulatedTarget::check(e.d.cuMemHostAlloc(&pinned, 256, 0));
  EmulatedTarget::check(e.d.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned), x, 256, e.stream));
  EmulatedTarget::check(e.d.cuMemFreeHost(pinned));
  EXPECT_EQ(e.wait(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(emulated_fault(), HasSubstr("freed meanwhile"));
}

TEST(EmulatedMemoryTest, FreedTwice) {
  EmulatedTarget e;
  const auto x = e.allocate(100);
  EXPECT_EQ(emulated_live_allocations(), 1u);
  EmulatedTarget::check(e.d.cuMemFree(x));
  EXPECT_EQ(emulated_live_allocations(), 0u);
  EXPECT_EQ(e.d.cuMemFree(x), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(emulated_fault(), HasSubstr("a freed allocation of 100 bytes"));
}

TEST(EmulatedMemoryTest, CopiesStayWithinAllocations) {
  EmulatedTarget e;
  const auto x = e.allocate(100);
  std::vector<std::byte> host(200);
  const auto to = reinterpret_cast<CUdeviceptr>(host.data());
  EXPECT_EQ(e.d.cuMemcpyAsync(to, x, 101, e.stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(emulated_fault(), "copies from 101 bytes at byte 0 of an allocation of 100 bytes");
  EXPECT_EQ(e.d.cuMemcpyAsync(x + 60, x, 40, e.stream), CUDA_SUCCESS);
  EXPECT_EQ(e.d.cuMemcpyAsync(x + 30, x, 40, e.stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(emulated_fault(), HasSubstr("overlap"));
  EXPECT_EQ(e.d.cuMemsetD8Async(x, 0, 101, e.stream), CUDA_ERROR_INVALID_VALUE);
  void* pinned = nullptr;
  EmulatedTarget::check(e.d.cuMemHostAlloc(&pinned, 50, 0));
  EXPECT_EQ(e.d.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned) + 1, x, 50, e.stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(emulated_fault(), HasSubstr("at byte 1 of a host allocation of 50 bytes"));
}

TEST(EmulatedMemoryTest, TheLimit) {
  const Setting limit("ANNEAL_EMULATED_MEMORY", "1M");
  EmulatedTarget e;
  const auto x = e.allocate(1000000);
  CUdeviceptr y = 0;
  EXPECT_EQ(e.d.cuMemAlloc(&y, 48577), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(emulated_fault(), "48577 bytes asked, 48576 of 1048576 free");
  EmulatedTarget::check(e.d.cuMemFree(x));
  size_t free = 0, total = 0;
  EmulatedTarget::check(e.d.cuMemGetInfo(&free, &total));
  EXPECT_EQ(free, 1u << 20);
  EXPECT_EQ(total, 1u << 20);
}

TEST(EmulatedMemoryTest, FreshMemoryIsPoison) {
  EmulatedTarget e;
  EXPECT_THAT(e.download<uint8_t>(e.allocate(999), 999), testing::Each(0xff));
}

TEST(EmulatedDriverTest, TheEnvironmentIsChecked) {
  for (const auto& [name, value] : {std::pair{"ANNEAL_EMULATED_MEMORY", "much"},
                                    {"ANNEAL_EMULATED_ORDER", "random"},
                                    {"ANNEAL_EMULATED_KERNELS", "some"}}) {
    const Setting setting(name, value);
    CUcontext context = nullptr;
    EXPECT_EQ(emulated_driver().cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(emulated_fault(), testing::AllOf(HasSubstr(name), HasSubstr(value)));
  }
}

TEST(EmulatedDriverTest, MaySkipKernels) {
  const Setting skip("ANNEAL_EMULATED_KERNELS", "skip");
  EmulatedTarget e;
  const auto function = e.function("KERNEL($name, 64)(Out<f32> y) { y[threadIdx.x] = 1; }");
  const auto y = e.upload(std::vector<float>(64, 3.0F));
  EXPECT_EQ(e.launch(function, 1, 64, y), CUDA_SUCCESS);
  EXPECT_THAT(e.download<float>(y, 64), testing::Each(3.0F));
  EXPECT_EQ(e.launch(function, 1, 65, y), CUDA_ERROR_INVALID_VALUE) << "of a launch that is wrong";
}

TEST(HostCompilerTest, ErrorsNameTheLine) {
  EmulatedTarget e;
  const auto compile = [&] { e.function("KERNEL($name, 1)(Out<f32> y) {\n  y[0] = z;\n}"); };
  EXPECT_THAT(error_of(compile),
              testing::AllOf(HasSubstr("internal: "), HasSubstr("refuses a device program"),
                             testing::ContainsRegex("f_[0-9a-f]*:2:10: error: .*z")));
}

TEST(HostCompilerTest, SharedMemoryIsReadByGivingItAType) {
  EmulatedTarget e;
  EXPECT_THAT(error_of([&] {
                e.function(
                    "KERNEL($name, 1)(Out<f32> y) {\n  SHARED(f32, s, 1);\n  auto x = s[0];\n"
                    "  y[0] = x + 1;\n}");
              }),
              HasSubstr("refuses a device program"));
}

TEST(HostCompilerTest, WithoutACompiler) {
  const std::string program = program_of({});
  {
    const Setting path("PATH", "/nowhere");
    EXPECT_EQ(error_of([&] { host_compiler().compile(program, 90); }),
              "device: the emulated device needs a C++ compiler: install g++ or clang++, or name "
              "one in ANNEAL_HOST_CXX");
  }
  const Setting compiler("ANNEAL_HOST_CXX", "/nowhere/c++");
  EXPECT_THAT(error_of([&] { host_compiler().compile(program, 90); }),
              HasSubstr("\"/nowhere/c++\" was not found: correct ANNEAL_HOST_CXX"));
}

}  // namespace
}  // namespace anneal::cuda
