#include "anneal/engine/data/batch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;

// Sample i is [1, 2] of i and 10 i; later ones are often ready first.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  std::string name(int64_t i) const override { return "n" + std::to_string(i); }
  std::optional<int64_t> label(int64_t i) const override { return i; }
  std::vector<SampleTensor> read(int64_t i) const override {
    const int64_t under_way = ++started - taken;
    int64_t most = most_ahead;
    while (under_way > most && !most_ahead.compare_exchange_weak(most, under_way)) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(i % 3 == 0 ? 300 : 10));
    if (broken_ >= 0 && i >= broken_) fail(ErrorCode::kIo, "nothing there");
    if (i == odd_shape) return {{"x", Tensor::of<int32_t>(DataType::kI32, {1, 1}, std::vector{7})}};
    const std::vector<int32_t> values = {static_cast<int32_t>(i), static_cast<int32_t>(10 * i)};
    return {{"x", Tensor::of<int32_t>(DataType::kI32, {1, 2}, values)}};
  }
  int64_t odd_shape = -1;
  mutable std::atomic<int64_t> started = 0, taken = 0, most_ahead = 0;

 private:
  int64_t size_, broken_;
};

TEST(BatchReader, GivesTheSameBatchesForAnyNumberOfThreads) {
  for (const int64_t size : {0, 1, 7, 23, 129})
    for (const int64_t batch : {1, 4, 200})
      for (const int threads : {0, 1, 2, 8}) {
        const auto numbers = std::make_shared<Numbers>(size);
        BatchReader reader(numbers, {.batch = batch, .threads = threads});
        int64_t seen = 0;
        while (const auto read = reader.next()) {
          ASSERT_EQ(read->first, seen);
          ASSERT_EQ(read->count, std::min(batch, size - seen));
          ASSERT_EQ(read->tensors.size(), 1u);
          const Tensor& tensor = read->tensors[0].tensor;
          ASSERT_EQ(tensor.dims(), (Dims{read->count, 2}));
          for (int64_t i = 0; i < read->count; ++i)
            ASSERT_EQ(tensor.as<int32_t>()[static_cast<size_t>(2 * i + 1)], 10 * (seen + i));
          seen += read->count;
          numbers->taken = seen;
        }
        EXPECT_EQ(seen, size);
        EXPECT_FALSE(reader.next());
        EXPECT_EQ(numbers->started, size);  // each is read once
      }
}

TEST(BatchReader, ReadsNoFurtherAheadThanItMay) {
  const auto numbers = std::make_shared<Numbers>(200);
  BatchReader reader(numbers, {.batch = 3, .threads = 8, .ahead = 2});
  while (const auto read = reader.next()) numbers->taken = read->first + read->count;
  // Of a batch that the caller is taking some slots are free before `taken` says so.
  EXPECT_LE(numbers->most_ahead, 3 * (2 + 1) + 3);
}

TEST(BatchReader, ReadsNothingAheadOnTheCallersThread) {
  const auto numbers = std::make_shared<Numbers>(10);
  BatchReader reader(numbers, {.batch = 4, .ahead = 0});
  EXPECT_EQ(numbers->started, 0);
  for (const int64_t read : {4, 8, 10}) {
    EXPECT_TRUE(reader.next());
    EXPECT_EQ(numbers->started, read);
  }
  EXPECT_FALSE(reader.next());
  BatchReader failing(std::make_shared<Numbers>(9, 5), {.batch = 4, .ahead = 0});
  EXPECT_TRUE(failing.next());
  for (int again = 0; again < 2; ++again)
    EXPECT_THAT(error_of([&] { failing.next(); }), HasSubstr("sample \"n5\": nothing there"));
}

TEST(BatchReader, TheFirstSampleThatFailsIsTold) {
  for (const int threads : {1, 4}) {
    BatchReader reader(std::make_shared<Numbers>(40, 13), {.batch = 4, .threads = threads});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(reader.next());
    for (int again = 0; again < 2; ++again)
      EXPECT_THAT(error_of([&] { reader.next(); }), HasSubstr("sample \"n13\": nothing there"));
  }
}

TEST(BatchReader, CanBeLeftAtAnyTime) {
  for (int batches = 0; batches < 5; ++batches) {
    const auto numbers = std::make_shared<Numbers>(1000);
    BatchReader reader(numbers, {.batch = 2, .threads = 4});
    for (int i = 0; i < batches; ++i) EXPECT_TRUE(reader.next());
  }
}

TEST(BatchReader, RefusesWhatMakesNoBatch) {
  const auto numbers = std::make_shared<Numbers>(9);
  numbers->odd_shape = 4;
  BatchReader reader(numbers, {.batch = 3});
  EXPECT_TRUE(reader.next());
  EXPECT_THAT(error_of([&] { reader.next(); }), HasSubstr("sample \"n4\" is i32[1,1]"));
  for (const BatchReaderOptions options :
       {BatchReaderOptions{.batch = 0}, {.threads = -1}, {.ahead = -1}})
    EXPECT_NE(error_of([&] { BatchReader(numbers, options); }), "");
  EXPECT_NE(error_of([] { BatchReader(nullptr, {}); }), "");
}

}  // namespace
}  // namespace anneal
