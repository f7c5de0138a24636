// Recording work, and what is done where it fails.
#include "anneal/engine/run/recorded_steps.h"

#include <gmock/gmock.h>

#include "anneal/core/fail.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

// Calls `work` as a capture does, and fails where a test wants it to.
class ToldStream final : public DeviceStream {
 public:
  enum class Fails { kNever, kAtOnce, kBehindTheWork };
  void wait() override {}
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    ++recorded;
    if (fails == Fails::kAtOnce) fail(ErrorCode::kDevice, "beginning to record: no");
    is_recording = true;
    try {
      work();
    } catch (...) {
      is_recording = false;
      throw;
    }
    is_recording = false;
    if (fails == Fails::kBehindTheWork) fail(ErrorCode::kDevice, "recording: no");
    return std::make_unique<Recording>();
  }
  void play(const Recording&) override { ++played; }

  Fails fails = Fails::kNever;
  bool is_recording = false;
  int recorded = 0, played = 0;
};

class RecordedSteps : public testing::Test {
 protected:
  std::optional<std::string> run() {
    return play_or_put(stream, recording, [&] { stream.is_recording ? ++taken_down : ++done; });
  }
  ToldStream stream;
  std::unique_ptr<Recording> recording;
  int taken_down = 0, done = 0;
};

TEST_F(RecordedSteps, AreRecordedOnceAndPlayed) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(), std::nullopt);
  EXPECT_EQ(stream.recorded, 1);
  EXPECT_EQ(stream.played, 3);
  EXPECT_EQ(taken_down, 1);
  EXPECT_EQ(done, 0);
}

TEST_F(RecordedSteps, AreDoneAsTheyAreWhereRecordingFails) {
  for (const auto fails : {ToldStream::Fails::kAtOnce, ToldStream::Fails::kBehindTheWork}) {
    stream.fails = fails;
    done = 0;
    EXPECT_THAT(run().value_or(""), testing::HasSubstr("record"));
    EXPECT_EQ(recording, nullptr);
    EXPECT_EQ(stream.played, 0);
    EXPECT_EQ(done, 1);
  }
}

TEST_F(RecordedSteps, AnErrorOfTheWorkIsTold) {
  const auto fails_always = [&] {
    play_or_put(stream, recording, [&] { fail(ErrorCode::kDevice, "launching conv1: too large"); });
  };
  EXPECT_EQ(error_of(fails_always), "device: launching conv1: too large");
  EXPECT_FALSE(stream.is_recording);
  // It has nothing to do with the device, so it is not even tried again.
  int calls = 0;
  EXPECT_EQ(error_of([&] {
              play_or_put(stream, recording, [&] {
                ++calls;
                fail(ErrorCode::kInvalidArgument, "a wrong size");
              });
            }),
            "invalid_argument: a wrong size");
  EXPECT_EQ(calls, 1);
}

TEST_F(RecordedSteps, WorkThatOnlyARecordingRefusesIsDone) {
  const auto why_not = play_or_put(stream, recording, [&] {
    if (stream.is_recording) fail(ErrorCode::kDevice, "launching conv1: not while capturing");
    ++done;
  });
  EXPECT_THAT(why_not.value_or(""), testing::HasSubstr("not while capturing"));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(recording, nullptr);
}

}  // namespace
}  // namespace anneal
