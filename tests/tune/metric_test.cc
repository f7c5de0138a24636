#include "anneal/engine/tune/metric/metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "anneal/engine/tune/metric/accuracy.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/tune/judged_tensors.h"

namespace anneal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Tensor row(const std::vector<float>& values) {
  return floats({1, static_cast<int64_t>(values.size())}, values);
}

struct Results {
  std::vector<Tensor> outputs, reference{};
  std::optional<int64_t> label{};
  std::vector<std::string> names{"a", "b", "c"};
  std::string sample = "s1";
};
SampleScore judge(const Metric& metric, const Results& of) {
  return metric.judge({of.sample, of.label, std::span(of.names).first(of.outputs.size()),
                       of.outputs,
                       of.reference.empty() ? std::span(of.outputs) : std::span(of.reference)});
}
double joint_score(const Metric& metric, const std::vector<SampleScore>& samples) {
  std::vector<const SampleScore*> pointers;
  for (const SampleScore& sample : samples) pointers.push_back(&sample);
  return metric.score(pointers);
}
// Of one sample.
double score(const Metric& metric, const Results& of) {
  return joint_score(metric, {judge(metric, of)});
}

TEST(Metric, TopClasses) {
  const auto top1 = make_metric("top1"), top5 = make_metric("top5");
  EXPECT_EQ(top1->name(), "top-1");
  EXPECT_EQ(top5->name(), "top-5");
  EXPECT_EQ(top5->unit(), "%");
  EXPECT_TRUE(top1->wants_labels() && top1->has_drop() && !top1->wants_reference());
  const Tensor scores = row({0, 7, 6, 5, 4, 3, 2, 1, 7, -kInfinity});
  const struct {
    int64_t label;
    double top1, top5;
  } cases[] = {{1, 100, 100}, {8, 0, 100}, {4, 0, 100}, {5, 0, 0}, {9, 0, 0}};
  for (const auto& one : cases) {
    EXPECT_EQ(score(*top1, {{scores}, {}, one.label}), one.top1) << one.label;
    EXPECT_EQ(score(*top5, {{scores}, {}, one.label}), one.top5) << one.label;
  }
  EXPECT_EQ(joint_score(*top1, {{1}, {0}, {1}, {1}}), 75);
  // Of two classes; and the output with more is the likelier one.
  EXPECT_EQ(score(*top1, {{row({0, 1})}, {}, 1}), 100);
  EXPECT_EQ(score(*top1, {{row({0, 1}), scores}, {}, 8}), 0);
  EXPECT_EQ(score(*make_metric("top1", "a"), {{row({0, 1}), scores}, {}, 1}), 100);
}

TEST(Metric, NoClassIsThatOfNan) {
  const Tensor none = row(std::vector<float>(10, kNan));
  EXPECT_EQ(score(*make_metric("top1"), {{none}, {}, 0}), 0);
  EXPECT_EQ(score(*make_metric("top5"), {{none}, {}, 0}), 0);
  EXPECT_EQ(score(*make_metric("top1"), {{row({kNan, 1, 2})}, {}, 2}), 100);
}

TEST(Metric, TopClassesSayWhatTheyMiss) {
  const auto top1 = make_metric("top1");
  const Tensor scores = row({1, 2, 3});
  EXPECT_THAT(error_of([&] { judge(*top1, {{scores}}); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("\"s1\" has no label")));
  for (const int64_t label : {-1, 3})
    EXPECT_THAT(error_of([&] {
                  judge(*top1, {{scores}, {}, label});
                }),
                AllOf(StartsWith("invalid_argument"), HasSubstr("\"a\" has 3 classes"),
                      HasSubstr("--label-offset")));
  const Results picture = {
      {floats({1, 3, 2, 2}, std::vector<float>(12)), integers({1, 3}, {1, 2, 3})}, {}, 1};
  EXPECT_THAT(error_of([&] { judge(*top1, picture); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("top-1 needs"),
                    HasSubstr("\"a\" f32[1,3,2,2], \"b\" i64[1,3]")));
  EXPECT_THAT(
      error_of([&] {
        judge(*make_metric("top1", "x"), {{scores}, {}, 1});
      }),
      AllOf(StartsWith("invalid_argument"), HasSubstr("\"x\" is none"), HasSubstr("\"a\"")));
  EXPECT_THAT(error_of([] { make_metric("top3"); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("\"top3\""),
                    HasSubstr("top1, top5, miou, miou-f32, cosine, sqnr, max-error")));
}

TEST(Metric, Cosine) {
  const auto cosine = make_metric("cosine");
  EXPECT_TRUE(cosine->wants_reference() && cosine->has_drop());
  const Tensor none = row({0, 0});
  const struct {
    std::vector<Tensor> outputs, reference;
    double cosine;
  } cases[] = {
      {{row({3, 4})}, {row({3, 4})}, 1},
      {{row({3, 4})}, {row({-6, -8})}, -1},
      {{row({1, 0})}, {row({1, 1})}, std::sqrt(0.5)},
      {{row({1}), row({0})}, {row({1}), row({1})}, std::sqrt(0.5)},
      {{row({1}), integers({1}, {9})}, {row({1}), integers({1}, {4})}, 1},
      {{none}, {none}, 1},
      {{none}, {row({1, 0})}, 0},
      {{row({1, kNan})}, {row({1, 0})}, 0},
      {{row({1, kInfinity})}, {row({1, 3})}, 0},
      {{row({1, kInfinity, kNan})}, {row({1, kInfinity, kNan})}, 1},
      {{row({1, kInfinity})}, {row({1, -kInfinity})}, 0},
      {{row({1, 2, 3})}, {row({1, 2})}, 0},
  };
  for (const auto& one : cases)
    EXPECT_NEAR(score(*cosine, {one.outputs, one.reference}), 100 * one.cosine, 1e-12);
  EXPECT_EQ(joint_score(*cosine, {{1}, {0.5}}), 75);
  const Results two = {{row({1, 0}), row({5})}, {row({0, 1}), row({5})}};
  EXPECT_EQ(score(*make_metric("cosine", "a"), two), 0);
  EXPECT_EQ(score(*make_metric("cosine", "b"), two), 100);
}

TEST(Metric, SignalToNoise) {
  const auto sqnr = make_metric("sqnr");
  EXPECT_EQ(sqnr->unit(), "dB");
  EXPECT_TRUE(sqnr->wants_reference());
  EXPECT_FALSE(sqnr->has_drop());
  const Tensor reference = row({6, 8});
  EXPECT_THAT(judge(*sqnr, {{row({6, 7})}, {reference}}), ElementsAre(100, 1));
  EXPECT_NEAR(score(*sqnr, {{row({6, 7})}, {reference}}), 20, 1e-12);
  EXPECT_NEAR(joint_score(*sqnr, {{100, 1}, {900, 0}}), 30, 1e-12);
  EXPECT_EQ(score(*sqnr, {{reference}, {reference}}), 200);
  EXPECT_EQ(score(*sqnr, {{row({1})}, {row({0})}}), -200);
  const SampleScore worst = judge(*sqnr, {{row({6, kNan})}, {reference}});
  EXPECT_TRUE(std::isfinite(worst[0]) && std::isfinite(worst[1]));
  EXPECT_EQ(joint_score(*sqnr, {worst, worst, {100, 1}}), -200);
}

TEST(Metric, MaxError) {
  const auto metric = make_metric("max-error");
  EXPECT_FALSE(metric->has_drop());
  const Tensor reference = row({1, 2});
  EXPECT_EQ(score(*metric, {{row({1.5, 2.25})}, {reference}}), -0.5);
  EXPECT_EQ(joint_score(*metric, {{0.5}, {3}, {2}}), -3);
  EXPECT_FALSE(std::signbit(score(*metric, {{reference}, {reference}})));
  const SampleScore worst = judge(*metric, {{row({1, kInfinity})}, {reference}});
  EXPECT_TRUE(std::isfinite(worst[0]));
  EXPECT_LT(joint_score(*metric, {worst}), -1e38);
  EXPECT_EQ(
      score(*make_metric("max-error", "a"), {{integers({2}, {4, 5})}, {integers({2}, {4, 9})}}),
      -4);
  EXPECT_THAT(error_of([&] {
                judge(*metric, {{integers({2}, {4, 5})}});
              }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("max-error needs"),
                    HasSubstr("\"a\" i64[2]")));
}

TEST(Metric, MeanOfAnApplications) {
  const auto metric = mean_metric("first", "m", [](const Answer& answer) {
    return static_cast<double>(answer.outputs[0].as<float>()[0]);
  });
  EXPECT_EQ(metric->name(), "first");
  EXPECT_EQ(metric->unit(), "m");
  EXPECT_FALSE(metric->wants_reference());
  EXPECT_EQ(joint_score(*metric, {judge(*metric, {{row({3})}}), judge(*metric, {{row({-4})}})}),
            -0.5);
  const SampleScore worst = judge(*metric, {{row({kNan})}});
  EXPECT_TRUE(std::isfinite(worst[0]));
  EXPECT_TRUE(std::isfinite(joint_score(*metric, {worst, worst, {1}})));
  EXPECT_LT(joint_score(*metric, {worst, {1}}), -1e300);
}

TEST(Metric, DropIsTheNetLossOfTop1) {
  std::vector<bool> right(400, true), reference(400, true);
  for (size_t i = 0; i < 9; ++i) right[i] = false;
  for (size_t i = 100; i < 105; ++i) reference[i] = false;
  const auto scores = [](const std::vector<bool>& of) {
    std::vector<SampleScore> all;
    for (const bool one : of) all.push_back({one ? 1.0 : 0.0});
    return all;
  };
  const auto top1 = make_metric("top1");
  const NetLoss loss = net_loss(right, reference);
  const DropInterval drop = drop_of(*top1, scores(right), scores(reference));
  EXPECT_NEAR(drop.drop, static_cast<double>(loss.net()) / 4, 1e-9);
  // 9 lost and 5 gained: 4 / 402, and 1.96 sqrt(15 - 16 / 402) / 402 to both sides.
  EXPECT_NEAR(drop.low, -0.8908, 1e-4);
  EXPECT_NEAR(drop.high, 2.8808, 1e-4);
  // The bootstrap's is like it, but for half an answer on each side.
  EXPECT_LE(drop.low, loss.net_interval.low / 4);
  EXPECT_GE(drop.high, loss.net_interval.high / 4);
  EXPECT_NEAR(drop.low, loss.net_interval.low / 4, 0.25);
  EXPECT_NEAR(drop.high, loss.net_interval.high / 4, 0.25);
  // No answer changed in 400: 1.96 / 402.
  const DropInterval none = drop_of(*top1, scores(right), scores(right));
  EXPECT_EQ(none.drop, 0);
  EXPECT_NEAR(none.low, -0.48755, 1e-4);
  EXPECT_NEAR(none.high, 0.48755, 1e-4);
}

TEST(Metric, DropOfOneSampleHasNoWidth) {
  const auto cosine = make_metric("cosine");
  const std::vector<SampleScore> one = {{0.75}}, reference = {{1}};
  const DropInterval drop = drop_of(*cosine, one, reference);
  EXPECT_THAT((std::vector{drop.drop, drop.low, drop.high}), ElementsAre(25, 25, 25));
}

// The sum over what may be 0: without a score where the samples hold nothing else.
class Ratio final : public Metric {
 public:
  std::string name() const override { return "ratio"; }
  std::string unit() const override { return ""; }
  SampleScore judge(const Answer&) const override { return {}; }
  double score(std::span<const SampleScore* const> samples) const override {
    double above = 0, below = 0;
    for (const SampleScore* sample : samples) above += (*sample)[0], below += (*sample)[1];
    return above / below;
  }
};

TEST(Metric, DropIsFiniteWhereScoresAreNot) {
  const std::vector<SampleScore> good = {{1, 1}, {0, 0}}, none = {{0, 0}, {0, 0}};
  const DropInterval same = drop_of(Ratio(), good, good);
  EXPECT_THAT((std::vector{same.drop, same.low, same.high}), ElementsAre(0, 0, 0));
  const DropInterval lost = drop_of(Ratio(), none, good);
  EXPECT_TRUE(std::isfinite(lost.drop) && std::isfinite(lost.low) && std::isfinite(lost.high));
  EXPECT_GT(lost.low, 1e300);
  EXPECT_THAT(
      error_of([&] { drop_of(Ratio(), good, none); }),
      AllOf(StartsWith("invalid_argument"), HasSubstr("ratio"), HasSubstr("no finite score")));
  EXPECT_THAT(error_of([&] { drop_of(Ratio(), {}, {}); }), StartsWith("invalid_argument"));
}

// A folder for scripts, and for the temporary folders of commands, of which none may stay.
class MetricCommand : public ::testing::Test {
 protected:
  MetricCommand() {
    std::string path = (std::filesystem::temp_directory_path() / "anneal test-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    std::filesystem::create_directory(root_ / "with space");
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", (root_ / "with space").c_str(), 1);
  }
  ~MetricCommand() override {
    EXPECT_TRUE(std::filesystem::is_empty(root_ / "with space"));
    before_ ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR");
    std::filesystem::remove_all(root_);
  }
  // The command that runs it.
  std::string script(const std::string& lines) const {
    std::ofstream(root_ / "script") << lines;
    return "sh '" + (root_ / "script").string() + "'";
  }
  std::string error_with(const std::string& lines) const {
    const auto metric = command_metric(script(lines));
    return error_of([&] { judge(*metric, {{row({1})}}); });
  }

 private:
  std::filesystem::path root_;
  std::optional<std::string> before_;
};

TEST_F(MetricCommand, PrintsANumber) {
  const auto metric = command_metric(script("echo\necho ' -2.5e1 '\n"));
  EXPECT_EQ(metric->name(), "command");
  EXPECT_EQ(metric->unit(), "");
  EXPECT_TRUE(metric->wants_reference() && metric->has_drop());
  EXPECT_THAT(judge(*metric, {{row({1})}}), ElementsAre(-25));
  EXPECT_EQ(joint_score(*metric, {{1}, {2}}), 1.5);
}

TEST_F(MetricCommand, IsGivenAFolder) {
  const auto metric = command_metric(script(R"sh(cd "$1" && [ $# = 1 ] || exit 1
[ "$(ls | tr '\n' ' ')" = 'a_b.npy a_b_2.npy label.txt reference sample.txt ' ] || exit 2
[ "$(ls reference | tr '\n' ' ')" = 'a_b.npy a_b_2.npy ' ] || exit 3
[ "$(cat sample.txt)" = "dog 'n \$cat" ] || exit 4
[ "$(head -c 6 a_b.npy | tail -c 5)" = NUMPY ] || exit 5
[ "$(tail -c 1 a_b_2.npy)$(tail -c 1 reference/a_b_2.npy)" = "AB" ] || exit 6
read nothing && exit 7
cat label.txt
)sh"));
  const auto letter = [](char of) {
    return Tensor::of<char>(DataType::kU8, {1}, std::vector<char>{of});
  };
  EXPECT_THAT(judge(*metric, {.outputs = {row({1}), letter('A')},
                              .reference = {row({2}), letter('B')},
                              .label = 41,
                              .names = {"a/b", "a:b"},
                              .sample = "dog 'n $cat"}),
              ElementsAre(41));
}

TEST_F(MetricCommand, IsGivenTheMask) {
  const auto metric = command_metric(script("tail -c 4 \"$1/mask/classes.npy\" | od -An -td4\n"));
  EXPECT_TRUE(metric->wants_masks());
  const std::vector<Tensor> outputs = {row({1})};
  const Tensor mask = Tensor::of<int32_t>(DataType::kI32, {1, 2}, std::vector<int32_t>{3, -1});
  EXPECT_THAT(metric->judge({"s", {}, std::vector<std::string>{"a"}, outputs, outputs, mask}),
              ElementsAre(-1));
}

TEST_F(MetricCommand, TakesArgumentsBeforeTheFolder) {
  EXPECT_THAT(judge(*command_metric(" printf '%d%.0s' 7 \n"), {{row({1})}}), ElementsAre(7));
}

TEST_F(MetricCommand, SaysWhatWentWrong) {
  EXPECT_THAT(error_with("echo 5; exit 3"),
              AllOf(StartsWith("invalid_argument"), HasSubstr("ended with status 3"),
                    HasSubstr("\"s1\""), HasSubstr("printed \"5\"")));
  EXPECT_THAT(error_with("kill -9 $$"), HasSubstr("by signal 9 (Killed)"));
  EXPECT_THAT(error_with("exit 0"), HasSubstr("printed nothing"));
  EXPECT_THAT(error_with("echo top1: 5"), HasSubstr("printed \"top1: 5\""));
  for (const char* rubbish : {"1 2", "nan", "inf", "1e999", "0x10", "5%", "1,5"})
    EXPECT_THAT(error_with("echo " + std::string(rubbish)),
                AllOf(StartsWith("invalid_argument"), HasSubstr("status 0"), HasSubstr(rubbish)));
  EXPECT_THAT(error_with("printf '1\\n2\\n'"), HasSubstr("printed \"1 2\""));
  // One that never stops printing is stopped.
  EXPECT_THAT(error_with("exec yes 1 2>&-"), AllOf(HasSubstr("signal 13"), HasSubstr("and more")));
  EXPECT_THAT(error_of([] { command_metric(" \n"); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("empty")));
}

TEST_F(MetricCommand, RunsFromSeveralThreads) {
  const auto metric = command_metric(script("cat \"$1/label.txt\"\n"));
  std::vector<std::thread> threads;
  std::vector<double> found(4);
  for (size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 5; ++k)
        found[i] += judge(*metric, {{row({1})}, {}, static_cast<int64_t>(i)})[0];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(found, ElementsAre(0, 5, 10, 15));
}

TEST_F(MetricCommand, WithoutAPlaceForTheFolder) {
  const auto metric = command_metric("echo 1;:");
  const std::string place = std::getenv("TMPDIR");
  setenv("TMPDIR", (place + "/missing").c_str(), 1);
  EXPECT_THAT(error_of([&] { judge(*metric, {{row({1})}}); }),
              AllOf(StartsWith("cannot_write"), HasSubstr("TMPDIR")));
  setenv("TMPDIR", place.c_str(), 1);
}

}  // namespace
}  // namespace anneal
