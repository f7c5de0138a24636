// A device behind a driver: what it asks of the driver, and what becomes of the driver's errors.
#include <gmock/gmock.h>

#include <algorithm>

#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/code/code_image.h"
#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/cuda/fake_driver.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

FunctionText text(const std::string& family, const std::string& body = "") {
  return {family, {}, "KERNEL($name, 256)(i64 n) {" + body + "}"};
}

class DriverDeviceTest : public testing::Test {
 protected:
  DriverDeviceTest() : no_cache_("ANNEAL_CACHE_DIR", "") { fake_card() = {}; }
  ~DriverDeviceTest() override {
    for (const auto& [kind, count] : fake_card().live) EXPECT_EQ(count, 0) << kind;
    EXPECT_EQ(fake_card().entered, 0) << "contexts are left";
    EXPECT_FALSE(fake_card().was_called_outside);
    EXPECT_THAT(fake_card().ended_captures, testing::IsEmpty());
    EXPECT_EQ(fake_card().mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's own is back";
  }
  std::unique_ptr<Device> open(int ordinal = 0) {
    return open_driver_device({.driver = fake_driver(),
                               .compiler = compiler_,
                               .ordinal = ordinal,
                               .name = "cuda:" + std::to_string(ordinal)});
  }
  // The image of functions of these families.
  std::vector<std::byte> open_and_compile(const std::vector<std::string>& families) {
    const auto device = open();
    std::vector<std::shared_ptr<const Function>> functions;
    for (const auto& family : families) functions.push_back(code_of(*device).add(text(family)));
    return device->prepare_code({});
  }
  // A launch with one parameter.
  static void launch_one(DeviceStream& stream, const Function& function, const Geometry& geometry,
                         int64_t value = 42) {
    Arguments arguments;
    arguments.add(value);
    launch(stream, function, geometry, arguments);
  }
  FakeCompiler compiler_;

 private:
  const Setting no_cache_;
};

TEST_F(DriverDeviceTest, IsWhatTheDriverSays) {
  const auto device = open(1);
  EXPECT_EQ(device->target(), "sm_86");
  EXPECT_EQ(device->description(),
            "cuda:1 (Made-up), sm_86, 7 multiprocessors, 1.5 GiB, driver for CUDA 13.0");
  EXPECT_EQ(spec_of(*device).name, "cuda:1 (Made-up)");
  EXPECT_EQ(spec_of(*device).multiprocessors, 7);
  fake_card().attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 72;
  EXPECT_EQ(spec_of(*open()).name, "A10");
}

TEST_F(DriverDeviceTest, IsNotHere) {
  fake_card().devices = 1;
  EXPECT_EQ(error_of([&] { open(1); }),
            "device: there is no cuda:1: this machine has 1 CUDA device");
  fake_card().major = 7;
  EXPECT_EQ(error_of([&] { open(); }),
            "device: cuda:0 (Made-up) is of architecture sm_76, which there are no kernels for: "
            "they begin at sm_80");
  fake_card().fails["cuDevicePrimaryCtxRetain"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(error_of([&] { open(); }), "device: opening cuda:0 (Made-up): CUDA error 2");
  fake_card().fails["cuInit"] = CUDA_ERROR_NO_DEVICE;
  EXPECT_EQ(error_of([&] { open(); }), "device: cuda:0 cannot be opened (CUDA_ERROR_NO_DEVICE)");
}

TEST_F(DriverDeviceTest, MemoryAndCopies) {
  const auto device = open();
  const auto stream = device->make_stream();
  const auto memory = device->allocate(100), staging = device->allocate_staging(50);
  const auto none = device->allocate(0);
  EXPECT_EQ(memory->size(), 100u);
  EXPECT_EQ(staging->size(), 50u);
  EXPECT_EQ(none->size(), 0u);
  EXPECT_NE(none->data(), nullptr);
  device->copy(memory->data(), staging->data(), 50, *stream);
  device->copy(memory->data(), staging->data(), 0, *stream);
  stream->wait();
  EXPECT_THAT(fake_card().done, ElementsAre("copy of 50 bytes"));
}

TEST_F(DriverDeviceTest, MayEndBeforeWhatItMade) {
  auto device = open();
  const auto stream = device->make_stream();
  const auto memory = device->allocate(100);
  device.reset();
  stream->wait();
}

TEST_F(DriverDeviceTest, OutOfMemoryTellsAskedAndFree) {
  const auto device = open();
  fake_card().fails["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(
      error_of([&] { device->allocate(12345); }),
      "out_of_memory: cannot allocate 12345 bytes on cuda:0 (Made-up): 1000 of its 5000 bytes are "
      "free");
  fake_card().fails.clear();
  EXPECT_EQ(device->allocate(12345)->size(), 12345u) << "the device is as good as before";
}

TEST_F(DriverDeviceTest, RunsFunctions) {
  const auto device = open();
  const auto a = code_of(*device).add(text("a")), b = code_of(*device).add(text("b"));
  device->prepare_code({});
  ASSERT_EQ(compiler_.compiled.size(), 1u);
  const auto stream = device->make_stream();
  launch_one(*stream, *b, {{3, 2, 1}, {64, 2, 2}, 1024}, 7);
  launch_one(*stream, *a, {{3, 0, 1}, {64, 1, 1}});
  launch_one(*stream, *a, {});
  EXPECT_THAT(fake_card().done,
              ElementsAre("allow 100000 bytes", "allow 100000 bytes",
                          "b<<<3x2x1, 64x2x2, 1024>>>(7)", "a<<<1x1x1, 1x1x1, 0>>>(42)"));
}

TEST_F(DriverDeviceTest, RefusesWhatNoDeviceLaunches) {
  const auto device = open();
  const auto a = code_of(*device).add(text("a"));
  const auto stream = device->make_stream();
  EXPECT_THAT(error_of([&] { launch_one(*stream, *a, {}); }),
              HasSubstr("prepare_code() comes before the first launch"));
  device->prepare_code({});
  fake_card().done.clear();
  for (const Geometry& wrong :
       {Geometry{{1, 65536, 1}, {1, 1, 1}}, Geometry{{1, 1, 1}, {0, 1, 1}},
        Geometry{{1, 1, 1}, {257, 1, 1}}, Geometry{{1, 1, 1}, {1, 1, 65}},
        Geometry{{1, 1, 1}, {1, 1, 1}, 100001}, Geometry{{1, 1, 1}, {65536, 65536, 1}}})
    EXPECT_THAT(error_of([&] { launch_one(*stream, *a, wrong); }),
                StartsWith("device: " + a->name + " cannot be launched with "));
  EXPECT_EQ(error_of([&] {
              launch_one(*stream, *a, {{1, 1, 1}, {512, 1, 1}, 9});
            }),
            "device: " + a->name +
                " cannot be launched with 1 x 1 x 1 blocks of 512 x 1 x 1 threads and 9 bytes of "
                "shared memory: at most 2147483647 x 65535 x 65535 blocks of 256 threads and "
                "100000 bytes");
  EXPECT_TRUE(fake_card().done.empty());
}

TEST_F(DriverDeviceTest, CompilesOnlyWhatIsNew) {
  const auto device = open();
  const auto a = code_of(*device).add(text("a"));
  device->prepare_code({});
  EXPECT_EQ(compiler_.compiled.size(), 1u);
  device->prepare_code({});
  EXPECT_EQ(compiler_.compiled.size(), 1u);
  auto b = code_of(*device).add(text("b"));
  const auto image = device->prepare_code({});
  ASSERT_EQ(compiler_.compiled.size(), 2u);
  EXPECT_THAT(compiler_.compiled[1], testing::Not(HasSubstr(a->name)));
  b.reset();  // comes back with the same text
  b = code_of(*device).add(text("b"));
  device->prepare_code({});
  EXPECT_EQ(compiler_.compiled.size(), 2u);
  EXPECT_NE(b->handle, nullptr);
  EXPECT_EQ(parts_of(image).size(), 2u) << "the image holds both programs";
}

TEST_F(DriverDeviceTest, TakesFromAnImageWhatFits) {
  const auto image_of = [&](int major, int minor, const std::vector<std::string>& families) {
    fake_card().major = major;
    fake_card().minor = minor;
    return open_and_compile(families);
  };
  struct Case {
    std::string what;
    std::vector<std::byte> image;
    size_t compiled;
  };
  const Case cases[] = {{"the same", image_of(8, 6, {"a", "b"}), 0},
                        {"of an older one", image_of(8, 0, {"a", "b"}), 0},
                        {"of a newer one", image_of(8, 9, {"a", "b"}), 1},
                        {"of another generation", image_of(9, 0, {"a", "b"}), 1},
                        {"a part", image_of(8, 6, {"b"}), 1},
                        {"with more", image_of(8, 6, {"a", "b", "c"}), 0},
                        {"nothing", {}, 1}};
  fake_card().major = 8;
  fake_card().minor = 6;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    compiler_.compiled.clear();
    const auto device = open();
    const auto a = code_of(*device).add(text("a")), b = code_of(*device).add(text("b"));
    device->prepare_code(each.image);
    EXPECT_EQ(compiler_.compiled.size(), each.compiled);
    EXPECT_NE(a->handle, nullptr);
    EXPECT_NE(b->handle, nullptr);
  }
  EXPECT_THAT(error_of([&] { open()->prepare_code(std::vector<std::byte>(40)); }),
              StartsWith("incompatible_plan: "));
}

TEST_F(DriverDeviceTest, NothingOfAnImageThatLacksAFunctionIsUsed) {
  const auto device = open();
  const auto a = code_of(*device).add(text("a")), b = code_of(*device).add(text("b"));
  auto parts = parts_of(open_and_compile({"a", "b"}));
  ASSERT_EQ(parts.size(), 1u);
  const auto name = std::as_bytes(std::span(b->name));
  auto& cubin = parts[0].cubin;
  for (auto at = cubin.begin();
       (at = std::search(at, cubin.end(), name.begin(), name.end())) != cubin.end();)
    *at = std::byte{'x'};
  EXPECT_THAT(error_of([&] { device->prepare_code(code_image(parts)); }),
              HasSubstr("looking for function " + b->name));
  compiler_.compiled.clear();
  device->prepare_code({});
  ASSERT_EQ(compiler_.compiled.size(), 1u);
  EXPECT_THAT(compiler_.compiled[0], testing::AllOf(HasSubstr(a->name), HasSubstr(b->name)));
}

TEST_F(DriverDeviceTest, KeepsNoImageOfTheHost) {
  const auto device = open_driver_device({.driver = fake_driver(),
                                          .compiler = compiler_,
                                          .name = "emulated",
                                          .keeps_images = false,
                                          .target = "emulated"});
  const auto a = code_of(*device).add(text("a"));
  EXPECT_TRUE(device->prepare_code(std::vector<std::byte>(40)).empty()) << "nor looks at one";
  EXPECT_EQ(device->target(), "emulated");
  EXPECT_NE(a->handle, nullptr);
}

TEST_F(DriverDeviceTest, CodeThatTheDriverDoesNotTake) {
  const auto device = open();
  const auto a = code_of(*device).add(text("a"));
  fake_card().fails["cuModuleLoadData"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
  EXPECT_EQ(error_of([&] { device->prepare_code({}); }),
            "device: cuda:0 (Made-up) does not take the code that fake compiler makes for it: is "
            "its driver older than this CUDA?");
  fake_card().fails.clear();
  device->prepare_code({});
  EXPECT_NE(a->handle, nullptr);
}

TEST_F(DriverDeviceTest, RecordsAndPlays) {
  const auto device = open();
  const auto stream = device->make_stream();
  const auto memory = device->allocate(100);
  const auto recording = stream->record([&] {
    device->copy(memory->data(), memory->data() + 50, 10, *stream);
    device->copy(memory->data(), memory->data() + 50, 20, *stream);
  });
  ASSERT_NE(recording, nullptr);
  EXPECT_TRUE(fake_card().done.empty());
  for (int i = 0; i < 2; ++i) stream->play(*recording);
  EXPECT_THAT(fake_card().done, ElementsAre("copy of 10 bytes", "copy of 20 bytes",
                                            "copy of 10 bytes", "copy of 20 bytes"));
  const auto other = device->make_stream();
  EXPECT_THAT(error_of([&] { other->play(*recording); }), StartsWith("internal: "));
}

TEST_F(DriverDeviceTest, ARecordingThatFailsLeavesNothing) {
  const auto device = open();
  const auto stream = device->make_stream();
  EXPECT_EQ(error_of([&] { stream->record([] { fail(ErrorCode::kIo, "no"); }); }), "io: no");
  for (const char* function :
       {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphUpload"}) {
    fake_card().fails = {{function, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED}};
    EXPECT_THAT(error_of([&] { stream->record([] {}); }), StartsWith("device: ")) << function;
    EXPECT_EQ(fake_card().live["graph"], 0) << function;
    EXPECT_EQ(fake_card().live["executable graph"], 0) << function;
  }
  fake_card().fails.clear();
  EXPECT_NE(stream->record([] {}), nullptr);
}

// What a library that cannot be captured gives, and a driver's own refusal.
TEST_F(DriverDeviceTest, AStreamWorksAfterAFailedRecording) {
  const auto device = open();
  const auto a = code_of(*device).add(text("a"));
  device->prepare_code({});
  const auto stream = device->make_stream();
  for (const char* function : {"cuStreamBeginCapture", "cuLaunchKernel", "cuStreamEndCapture",
                               "cuGraphInstantiate", "cuGraphUpload"}) {
    SCOPED_TRACE(function);
    fake_card().done.clear();
    fake_card().fails = {{function, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}};
    EXPECT_THAT(error_of([&] { stream->record([&] { launch_one(*stream, *a, {}); }); }),
                StartsWith("device: "));
    fake_card().fails.clear();
    launch_one(*stream, *a, {});
    stream->wait();
    EXPECT_THAT(fake_card().done, ElementsAre("a<<<1x1x1, 1x1x1, 0>>>(42)"))
        << "it is launched, not recorded";
  }
}

TEST_F(DriverDeviceTest, AThreadSleepsUntilTheStreamIsDone) {
  const auto device = open();
  const auto stream = device->make_stream();
  for (int i = 0; i < 2; ++i) stream->wait();
  EXPECT_THAT(fake_card().events, ElementsAre(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(fake_card().calls["cuEventSynchronize"], 2);
  EXPECT_EQ(fake_card().calls["cuStreamSynchronize"], 0);
}

TEST_F(DriverDeviceTest, AThreadSpinsIfToldSo) {
  const auto device = open();
  const auto stream = device->make_stream();
  set_spins(*stream, true);
  stream->wait();
  EXPECT_EQ(fake_card().calls["cuStreamSynchronize"], 1);
  fake_card().fails["cuStreamSynchronize"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_THAT(error_of([&] { stream->wait(); }), StartsWith("device: running the work of a "));
  EXPECT_EQ(fake_card().calls["cuEventSynchronize"], 0);
}

TEST_F(DriverDeviceTest, TakesTheTime) {
  const auto device = open();
  const auto stream = device->make_stream();
  int calls = 0;
  EXPECT_EQ(stream->microseconds([&] { ++calls; }), 250.0);
  EXPECT_EQ(calls, 1);
  fake_card().fails["cuEventElapsedTime"] = CUDA_ERROR_NOT_READY;
  EXPECT_THAT(error_of([&] { stream->microseconds([] {}); }),
              StartsWith("device: taking the time"));
}

TEST_F(DriverDeviceTest, ALostDeviceSaysSoFromThenOn) {
  auto device = open();
  const auto a = code_of(*device).add(text("a"));
  device->prepare_code({});
  const auto stream = device->make_stream();
  const auto memory = device->allocate(100);
  const auto recording = stream->record([&] { launch_one(*stream, *a, {}); });
  fake_card().fails["cuEventSynchronize"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  const std::string first = error_of([&] { stream->wait(); });
  EXPECT_EQ(
      first,
      "device: running the work of a stream (CUDA_LAUNCH_BLOCKING=1 shows which launch failed) on "
      "cuda:0 (Made-up): CUDA_ERROR_ILLEGAL_ADDRESS; restart this process, for after such a "
      "fault CUDA refuses it the device");
  fake_card().fails.clear();
  const std::string later = "device: cuda:0 (Made-up) was lost; restart this process, ";
  EXPECT_THAT(error_of([&] { stream->wait(); }), StartsWith(later));
  EXPECT_THAT(error_of([&] { stream->wait(); }), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(error_of([&] { device->allocate(1); }), StartsWith(later));
  EXPECT_THAT(error_of([&] { device->make_stream(); }), StartsWith(later));
  EXPECT_THAT(error_of([&] { launch_one(*stream, *a, {}); }), StartsWith(later));
  EXPECT_THAT(error_of([&] { stream->play(*recording); }), StartsWith(later));
  EXPECT_THAT(error_of([&] { device->copy(memory->data(), memory->data(), 1, *stream); }),
              StartsWith(later));
  device = open();
  EXPECT_EQ(device->allocate(1)->size(), 1u) << "one made anew works";
}

TEST_F(DriverDeviceTest, ErrorsMayBeExplained) {
  const auto device = open_driver_device(
      {.driver = fake_driver(), .compiler = compiler_, .name = "emulated", .explain = [] {
         return std::string("a_1, line 3: x[9] of 8");
       }});
  const auto stream = device->make_stream();
  fake_card().fails["cuEventSynchronize"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(error_of([&] { stream->wait(); }),
                HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS: a_1, line 3: x[9] of 8"));
}

TEST_F(DriverDeviceTest, EveryErrorIsOneAndLeaksNothing) {
  for (const char* function :
       {"cuMemAlloc", "cuMemHostAlloc", "cuMemcpyAsync", "cuStreamCreate", "cuEventCreate",
        "cuEventRecord", "cuEventSynchronize", "cuGraphLaunch", "cuModuleLoadData",
        "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute", "cuLaunchKernel"})
    for (const CUresult code : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_ILLEGAL_ADDRESS}) {
      SCOPED_TRACE(function);
      fake_card() = {};
      fake_card().fails[function] = code;
      EXPECT_THAT(error_of([&] {
                    const auto device = open();
                    const auto a = code_of(*device).add(text("a"));
                    device->prepare_code({});
                    const auto stream = device->make_stream();
                    const auto memory = device->allocate(10),
                               staging = device->allocate_staging(10);
                    device->copy(memory->data(), staging->data(), 10, *stream);
                    launch_one(*stream, *a, {});
                    stream->play(*stream->record([&] { launch_one(*stream, *a, {}); }));
                    stream->microseconds([] {});
                  }),
                  StartsWith("device: "));
      for (const auto& [kind, count] : fake_card().live) EXPECT_EQ(count, 0) << kind;
    }
}

}  // namespace
}  // namespace anneal::cuda
