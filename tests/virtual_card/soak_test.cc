// Two virtual cards in one process, 16 contexts on 16 threads, in an order that a seed chooses:
// every result is the CPU's, and nothing is left at the end.
//
// ANNEAL_SOAK_SECONDS: how long (4). ANNEAL_SOAK_SEED: of what the threads do (1).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "anneal/engine/run/stream.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/tests/cuda/gpu_engine.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

constexpr int kThreads = 16, kDevices = 2;
constexpr uint32_t kSeeds = 8;

// Sums of 8 bits, which are equal to the bit.
constexpr std::string_view kBytesNet = R"txt(
graph bytes_net(x: f32[1,3,9,7])
  const s_x: f32[] = {0.02}
  const z_x: u8[] = {121}
  const w: i8[16,3,3,3] = random(1)
  const none: i8[] = {0}
  const s_y: f32[] = {0.25}
  const z_y: u8[] = {128}
  q = Quantize(x, s_x, z_x) dtype=u8
  c = Conv(q, w, z_x, none) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c) program="(i32)->(u8) saturate_u8(add(rint(mul(f32($0),0.01f32)),128f32))"
  y = Dequantize(r, s_y, z_y)
  return y
)txt";

using Values = std::map<std::string, std::vector<float>>;

struct SoakNet {
  std::string_view text;
  std::vector<Tensor> (*inputs)(uint32_t seed);
  bool is_exact = false;
  std::vector<std::shared_ptr<const Engine>> engines = {};  // by device
  std::vector<Values> wanted = {};                          // by seed
};

long setting(const char* name, long otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atol(value) : otherwise;
}

std::vector<SoakNet> load_nets() {
  std::vector<SoakNet> nets = {
      {kConvNet,
       [](uint32_t seed) {
         return std::vector{random_f32({1, 3, 9, 7}, seed)};
       }},
      {kDynamicNet,
       [](uint32_t seed) {
         const int64_t n = 1 + seed * 5 % 16;
         return std::vector{random_f32({n, 6}, seed), random_f32({n, 6}, seed + 1)};
       }},
      {kLateNet,
       [](uint32_t seed) {
         return std::vector{random_f32({3}, seed), tensor_i64({1 + seed % 5, 3})};
       }},
      {kBytesNet,
       [](uint32_t seed) {
         return std::vector{random_f32({1, 3, 9, 7}, seed)};
       },
       true},
  };
  for (SoakNet& net : nets) {
    const EngineFile file = build_for(net.text, {test_target(), "cpu"});
    const auto on_cpu = load_on(file, "cpu");
    for (uint32_t seed = 0; seed < kSeeds; ++seed) {
      ExecutionContext context(on_cpu, {.threads = 1});
      net.wanted.push_back(run(context, *on_cpu, net.inputs(seed)));
    }
    for (int device = 0; device < kDevices; ++device)
      net.engines.push_back(load_on(file, fmt::format("cuda:{}", device)));
  }
  return nets;
}

bool agree(const Values& got, const Values& wanted, bool is_exact) {
  if (is_exact) return got == wanted;
  for (const auto& [name, values] : wanted) {
    const auto found = got.find(name);
    if (found == got.end() || found->second.size() != values.size()) return false;
    for (size_t i = 0; i < values.size(); ++i)
      if (!(std::abs(found->second[i] - values[i]) <= 1e-4 * (1 + std::abs(values[i]))))
        return false;
  }
  return true;
}

Values run_on(const Stream& stream, ExecutionContext& context, const Engine& engine,
              std::vector<Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine.inputs()[i].name, inputs[i].view());
  context.enqueue(stream);
  inputs.clear();  // they have been read
  context.wait();
  Values outputs;
  for (const TensorInfo& port : engine.outputs())
    outputs[port.name] = elements(context.output(port.name));
  return outputs;
}

// As torch.cuda.graph() does: nothing that Anneal calls may end the capture.
class CapturingLibrary {
 public:
  explicit CapturingLibrary(const cuda::Driver& driver) : driver_(driver) {
    cuda::CUcontext context = nullptr;
    expect(driver_.cuDevicePrimaryCtxRetain(&context, 0));
    expect(driver_.cuCtxPushCurrent(context));
    expect(driver_.cuMemAlloc(&memory_, 64));
    expect(driver_.cuStreamCreate(&stream_, cuda::CU_STREAM_NON_BLOCKING));
  }
  ~CapturingLibrary() {
    cuda::CUcontext context = nullptr;
    expect(driver_.cuStreamDestroy(stream_));
    expect(driver_.cuMemFree(memory_));
    expect(driver_.cuCtxPopCurrent(&context));
    expect(driver_.cuDevicePrimaryCtxRelease(0));
  }
  void capture() {
    cuda::CUgraph graph = nullptr;
    cuda::CUgraphExec executable = nullptr;
    expect(driver_.cuStreamBeginCapture(stream_, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect(driver_.cuMemsetD8Async(memory_, 1, 64, stream_));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    expect(driver_.cuStreamEndCapture(stream_, &graph));
    expect(driver_.cuGraphInstantiate(&executable, graph, 0));
    expect(driver_.cuGraphDestroy(graph));
    expect(driver_.cuGraphLaunch(executable, stream_));
    expect(driver_.cuStreamSynchronize(stream_));
    expect(driver_.cuGraphExecDestroy(executable));
  }

 private:
  static void expect(cuda::CUresult result) { EXPECT_EQ(result, cuda::CUDA_SUCCESS); }

  const cuda::Driver& driver_;
  cuda::CUdeviceptr memory_ = 0;
  cuda::CUstream stream_ = nullptr;
};

TEST(Soak, ContextsOfTwoCards) {
  if (!is_virtual_card()) GTEST_SKIP() << "it needs the virtual card";
  const cuda::Driver& driver = *cuda::driver_library().table;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(setting("ANNEAL_SOAK_SECONDS", 4));
  const auto seed = static_cast<uint32_t>(setting("ANNEAL_SOAK_SEED", 1));
  std::atomic<int> runs = 0, wrong = 0;
  {
    const std::vector<SoakNet> nets = load_nets();
    const std::vector<Stream> shared = {Stream::make("cuda:0"), Stream::make("cuda:1")};
    const auto work = [&](uint32_t thread) {
      std::mt19937 random(seed * 1000 + thread);
      while (std::chrono::steady_clock::now() < end) {
        const SoakNet& net = nets[random() % nets.size()];
        const size_t device = random() % kDevices;
        const Engine& engine = *net.engines[device];
        ExecutionContext context(net.engines[device], {.threads = 1});
        const Stream own = Stream::make(fmt::format("cuda:{}", device));
        for (size_t left = 1 + random() % 8; left != 0; --left) {
          const uint32_t inputs = random() % kSeeds;
          const uint32_t way = random() % 3;
          const Values got = way == 0 ? run(context, engine, net.inputs(inputs))
                                      : run_on(way == 1 ? own : shared[device], context, engine,
                                               net.inputs(inputs));
          ++runs;
          wrong += !agree(got, net.wanted[inputs], net.is_exact);
        }
      }
    };
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
    threads.emplace_back([&] {
      CapturingLibrary library(driver);
      while (std::chrono::steady_clock::now() < end) library.capture();
    });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(wrong, 0);
  fmt::print("{} runs\n", runs.load());
  // The virtual card ends the process if a context ends with memory, streams, graphs or modules in
  // it. Here both have ended.
  for (int device = 0; device < kDevices; ++device)
    EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(device), cuda::CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace anneal::testing
