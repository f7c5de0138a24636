// What of a mapped engine file stays in memory once it is loaded.
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "anneal/core/file.h"
#include "anneal/engine/run/memory/shared_packing.h"
#include "anneal/tests/engine/build_and_run.h"

namespace anneal::testing {
namespace {

// 2.3 MB of weights that kernels pack, and 1 MB that they read in place.
constexpr std::string_view kWideNet = R"txt(
graph wide_net(x: f32[1,256,5,5], rows: i64[3])
  const w: f32[256,256,3,3] = random(1)
  const table: f32[4096,64] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  found = Gather(table, rows) axis=0
  return c as y, found
)txt";

// Of the mappings of a file, in this process.
size_t resident_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  size_t kilobytes = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) ours = line.ends_with(path);
    if (ours && line.starts_with("Rss:")) kilobytes += std::stoul(line.substr(4));
  }
  return kilobytes * 1024;
}

class MappedFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("anneal_mapped_" + std::to_string(getpid())))
          .string();
};

TEST_F(MappedFile, PagesGivenBackComeBack) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::byte> bytes(64 * page);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i / page + i % 7);
  write_file_atomically(path_, bytes);
  const FileBytes mapped = map_file(path_);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), mapped.bytes.begin()));
  ASSERT_EQ(resident_bytes(path_), bytes.size());

  // Of the first and the last page a byte is kept.
  give_pages_back({mapped.bytes.subspan(1, bytes.size() - 2), mapped.owner});
  EXPECT_EQ(resident_bytes(path_), 2 * page);
  give_pages_back({mapped.bytes.subspan(0, page - 1), mapped.owner});
  EXPECT_EQ(resident_bytes(path_), 2 * page) << "not a whole page";
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), mapped.bytes.begin()));
}

// Madvise would empty it.
TEST_F(MappedFile, OtherMemoryStays) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::byte> bytes(8 * page, std::byte{7});
  write_file_atomically(path_, bytes);
  give_pages_back({bytes, std::make_shared<int>()});
  give_pages_back(Tensor::copy_of(DataType::kU8, {1}, {bytes.data(), 1}));
  give_pages_back({bytes, nullptr});
  EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), static_cast<ptrdiff_t>(bytes.size()));
  const FileBytes mapped = map_file(path_);
  EXPECT_TRUE(std::ranges::equal(mapped.bytes, bytes));
  give_pages_back({bytes, mapped.owner});
  EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), static_cast<ptrdiff_t>(bytes.size()));
  give_pages_back(
      {{mapped.bytes.data() + page, mapped.bytes.size()}, mapped.owner});  // beyond its end
  EXPECT_EQ(resident_bytes(path_), bytes.size());
}

// As the self-check runs large layers: convolutions and products by codes or bytes pack their
// weights in each run, in the same memory; other products read them where they lie, or pack parts
// of them.
TEST(SharedPacking, GivesTheResultsOfWeightsPackedAtLoad) {
  EngineFile file = build_text(R"txt(
graph net(x: f32[3,1024], image: f32[1,128,8,8], bytes: u8[1,128,8,8], row: f32[1,2048], rows: f32[40,1024], many: f32[600,1024], some: u8[5,1024])
  const w: f32[1024,512] = random(1)
  const v: f32[512,700] = random(2)
  const small: f32[700,4] = random(3)
  const filters: f32[256,128,3,3] = random(4)
  const others: f32[128,256,3,3] = random(5)
  m = MatMul(x, w)
  n = MatMul(m, v)
  y = MatMul(n, small)
  a = Conv(image, filters) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  b = Conv(a, others) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  const integers: i8[1024,128,3,3] = random(6)
  const zero: u8[] = {100}
  sums = Conv(bytes, integers, zero) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  c = Pointwise(sums) program="(i32)->(f32) f32($0)"
  const codes: u8[2048,1024] = random(7)
  const zeros: u8[2048,64] = random(8)
  const scales: f32[2048,64] = random(9)
  d = MatMul(row, codes, _, zeros, scales) transpose_b=true b_encoding=u4
  const half: f16[1024,1040] = random(10)
  const sevens: i8[1024,1040] = random(11)
  e = MatMul(rows, w)
  f = MatMul(x, half)
  g = MatMul(rows, half)
  h = MatMul(many, w)
  of_bytes = MatMul(some, sevens)
  i = Pointwise(of_bytes) program="(i32)->(f32) f32($0)"
  return y, b, c, d, e, f, g, h, i
)txt");
  std::vector<std::byte> pixels(size_t{128} * 8 * 8);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i * 37);
  const std::vector<Tensor> inputs = {
      random_f32({3, 1024}, 4),
      random_f32({1, 128, 8, 8}, 6),
      Tensor::copy_of(DataType::kU8, {1, 128, 8, 8}, pixels),
      random_f32({1, 2048}, 10),
      random_f32({40, 1024}, 11),
      random_f32({600, 1024}, 12),
      Tensor::copy_of(DataType::kU8, {5, 1024}, std::span(pixels).first(5 * 1024))};
  const auto result = [&] {
    const auto engine = make_engine(EngineFile(file), {.device = "cpu"});
    ExecutionContext context(engine);
    const auto first = run(context, *engine, inputs);
    EXPECT_EQ(run(context, *engine, inputs), first);
    return first;
  };
  const auto packed = result();
  file.packing = SharedPacking::make();
  EXPECT_EQ(result(), packed);
}

TEST_F(MappedFile, PackedWeightsAreNotThereTwice) {
  const EngineFile file = build_text(kWideNet);
  write_engine_file(path_, file);
  const auto mapped = Engine::load(path_, {.device = "cpu"});
  EXPECT_LT(resident_bytes(path_), 128 << 10);

  const std::vector<Tensor> inputs = {random_f32({1, 256, 5, 5}, 3), tensor_i64({0, 4095, 17})};
  ExecutionContext context(mapped);
  const auto read = Engine::load(path_, {.device = "cpu", .map = false});
  ExecutionContext of_read(read);
  EXPECT_EQ(run(context, *mapped, inputs), run(of_read, *read, inputs));
  EXPECT_LT(resident_bytes(path_), 2 << 20) << "only what is read in place comes back";
}

}  // namespace
}  // namespace anneal::testing
