// Tuning of a small network from its samples to an engine.
#include "anneal/engine/tune/search/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/engine/tune/frontier/frontier_forms.h"
#include "anneal/engine/tune/search/mix_options.h"
#include "anneal/engine/tune/search/tune_journal.h"
#include "anneal/engine/tune/search/tune_subject.h"
#include "anneal/graph/text/text.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/tune/normal_samples.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

Graph network() {
  return parse_graph(R"G(graph g(x: f32[1,3,8,8])
  const w: f32[8,3,3,3] = random(1)
  const v: f32[8,8,3,3] = random(2)
  const u: f32[8,8,1,1] = random(4)
  const f: f32[32,5] = random(3)
  a = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(a) program="(f32)->(f32) max($0,0f32)"
  b = Conv(r, v) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  d = Pointwise(b, r) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c = Conv(d, u) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  p = Pool(c) kernel=[4,4] strides=[4,4] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  t = Reshape(p, i64{1,32})
  y = MatMul(t, f)
  return y
)G");
}

// Normal numbers, whose label is the class that the network in f32 gives.
class LabelledSamples final : public NormalSamples {
 public:
  explicit LabelledSamples(int64_t size) : NormalSamples(size, Dims{1, 3, 8, 8}) {
    ExecutionContext context(make_engine(build(network()), {.device = "cpu"}));
    for (int64_t i = 0; i < size; ++i) {
      const auto sample = read(i);
      context.set_input("x", sample[0].tensor.view());
      context.run();
      const Tensor y = dense_copy(context.output("y"));
      const auto* scores = reinterpret_cast<const float*>(y.bytes().data());
      labels_.push_back(std::ranges::max_element(scores, scores + 5) - scores);
    }
  }
  std::optional<int64_t> label(int64_t i) const override { return labels_[static_cast<size_t>(i)]; }

 private:
  std::vector<int64_t> labels_;
};

std::shared_ptr<const Dataset> samples() {
  static const auto all = std::make_shared<LabelledSamples>(120);
  return all;
}

struct Tuning : BuildOptions {
  std::shared_ptr<const Metric> metric = make_metric("top1");
};

Tuning options() {
  Tuning options;
  options.tuning.modelled_times = true;
  options.precision.types = {Precision::kI8};
  options.threads = 1;
  options.tuning.budget = 100;
  return options;
}

TuneResult tune(const Graph& model, const TuneSamples& samples, const Tuning& options) {
  return anneal::tune(model, samples, options.metric, options);
}

std::string subject_of(const Tuning& options, const std::shared_ptr<const Dataset>& samples) {
  const std::vector<Precision> types = {Precision::kI8};
  return tuning_subject(network(), split_samples(samples), *options.metric, options, types, false);
}

TEST(Tune, FindsTheFastestMixWithinTheBudget) {
  const TuneResult tuned = tune(network(), split_samples(samples()), options());
  const Frontier& frontier = tuned.frontier;
  ASSERT_EQ(frontier.groups.size(), 3u);  // a and b meet in a sum
  ASSERT_GE(frontier.points.size(), 2u);
  // With all to lose, nothing is faster.
  EXPECT_EQ(frontier.chosen, 0u);
  bool has_f32 = false;
  double claimed = 0;  // by the last on the frontier
  for (size_t i = 0; i < frontier.points.size(); ++i) {
    const FrontierPoint& point = frontier.points[i];
    if (i > 0) {
      EXPECT_GE(point.milliseconds, frontier.points[i - 1].milliseconds);
    }
    EXPECT_TRUE(point.is_modelled);
    ASSERT_TRUE(point.confirmed);
    EXPECT_EQ(point.search.samples, 36);
    EXPECT_EQ(point.confirmed->samples, 60);
    EXPECT_EQ(point.precisions.size(), frontier.groups.size());
    EXPECT_EQ(point.claimed.has_value(), point.is_on_frontier);
    if (point.claimed) {
      EXPECT_GE(*point.claimed, claimed);
      EXPECT_LE(*point.claimed, point.confirmed->score);
      claimed = *point.claimed;
    }
    if (point.name != "f32") continue;
    has_f32 = true;
    EXPECT_EQ(point.output_error, 0);
    EXPECT_EQ(point.search.score, 100);
    EXPECT_TRUE(point.is_on_frontier);
  }
  EXPECT_TRUE(has_f32);
}

TEST(Tune, WithNothingToLoseItKeepsWhatWouldLose) {
  Tuning strict = options();
  strict.tuning.budget = 0;
  const Frontier frontier = tune(network(), split_samples(samples()), strict).frontier;
  const FrontierPoint& chosen = frontier.points[frontier.chosen];
  EXPECT_LE(chosen.search.drop, 0);
  for (size_t i = 0; i < frontier.chosen; ++i)
    EXPECT_TRUE(frontier.points[i].search.drop > 0 || frontier.points[i].confirmed->drop > 0);
  for (const KeptHigh& kept : frontier.kept_high) {
    EXPECT_NE(chosen.precisions[kept.group], Precision::kI8);
    EXPECT_NE(kept.why, "");
  }
}

TEST(Tune, WhatLosesTooMuchStaysHighAndIsToldWhy) {
  Tuning wanted = options();
  wanted.metric = make_metric("sqnr");
  wanted.tuning.budget = 0;
  const Frontier loose = tune(network(), split_samples(samples()), wanted).frontier;
  const auto int8 = std::ranges::find(loose.points, "int8", &FrontierPoint::name);
  ASSERT_NE(int8, loose.points.end());
  wanted.tuning.budget = int8->search.score + 1;
  const Frontier frontier = tune(network(), split_samples(samples()), wanted).frontier;
  EXPECT_NE(frontier.points[frontier.chosen].name, "int8");
  ASSERT_FALSE(frontier.kept_high.empty());
  for (const KeptHigh& kept : frontier.kept_high)
    EXPECT_THAT(kept.why, testing::HasSubstr("int8 "));
}

// Findings of another form are found again.
TEST(Tune, AJournalIsNotBelievedBlindly) {
  const std::string path =
      (fs::temp_directory_path() / ("anneal_blind_" + std::to_string(::getpid()))).string();
  const Tuning plain = options();
  const TuneResult whole = tune(network(), split_samples(samples()), plain);
  Tuning journaled = plain;
  journaled.tuning.journal = path;
  tune(network(), split_samples(samples()), journaled);
  const std::string subject = subject_of(journaled, samples());
  std::vector<std::string> names;
  {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      if (const auto json = nlohmann::json::parse(line); json.contains("name"))
        names.push_back(json["name"]);
  }
  ASSERT_GT(names.size(), 8u);
  for (const char* text : {"", "[]", "{\"scores\":[],\"damages\":[]}", "[-1,1e999]"}) {
    fs::remove(path);
    for (const std::string& name : names)
      if (name != "f32") TuneJournal(path, subject).remember(name, text);
    const TuneResult tuned = tune(network(), split_samples(samples()), journaled);
    EXPECT_EQ(frontier_json(tuned.frontier), frontier_json(whole.frontier)) << text;
  }
  fs::remove(path);
}

TEST(Tune, TheEngineIsWhatTheMixBuilds) {
  const TuneResult tuned = tune(network(), split_samples(samples()), options());
  const Frontier& frontier = tuned.frontier;
  GraphBuildOptions again;
  again.passes.precision = mix_options(
      frontier.groups, frontier.points[frontier.chosen].precisions,
      std::make_shared<const CalibrationTable>(parse_calibration_table(frontier.calibration)),
      frontier.symmetric);
  EXPECT_EQ(save(build(network(), again)), save(tuned.engine));
}

TEST(Tune, KilledAtAnyMomentItEndsTheSame) {
  const std::string journal =
      (fs::temp_directory_path() / ("anneal_tune_" + std::to_string(::getpid()))).string();
  Tuning plain = options();
  plain.tuning.budget = 3;
  int told = 0;
  plain.progress = [&](const Progress&) {
    ++told;
    return true;
  };
  const TuneResult whole = tune(network(), split_samples(samples()), plain);
  ASSERT_GT(told, 10);
  for (int k = 0; k < 10; ++k) {
    Tuning killed = plain;
    killed.tuning.journal = journal;
    int left = 1 + k * told / 10;
    killed.progress = [&](const Progress&) {
      if (--left == 0) throw std::runtime_error("killed");
      return true;
    };
    EXPECT_THROW(tune(network(), split_samples(samples()), killed), std::runtime_error);
    EXPECT_TRUE(fs::exists(journal));
    killed.progress = {};
    const TuneResult resumed = tune(network(), split_samples(samples()), killed);
    EXPECT_TRUE(resumed.was_resumed);
    EXPECT_EQ(frontier_json(resumed.frontier), frontier_json(whole.frontier)) << "killed at " << k;
    EXPECT_EQ(save(resumed.engine), save(whole.engine));
    fs::remove(journal);
  }
}

// What is read under the same names, and who judges it, may have changed since.
TEST(Tune, AJournalOfOtherAnswersIsNotUsed) {
  const std::string journal =
      (fs::temp_directory_path() / ("anneal_other_" + std::to_string(::getpid()))).string();
  const auto judged_by = [&](double score, int kill_at) {
    Tuning options = anneal::options();
    options.tuning.journal = journal;
    options.metric = mean_metric("mine", "", [score](const Answer&) { return score; });
    int left = kill_at;
    options.progress = [&](const Progress&) {
      if (--left == 0) throw std::runtime_error("killed");
      return true;
    };
    return tune(network(), split_samples(samples()), options);
  };
  EXPECT_THROW(judged_by(0.5, 12), std::runtime_error);
  const TuneResult other = judged_by(7, 0);
  EXPECT_FALSE(other.was_resumed);
  for (const FrontierPoint& point : other.frontier.points) EXPECT_EQ(point.search.score, 7);
  fs::remove(journal);
}

// One pixel each; that of sample `other` is of another class.
class MaskedSamples final : public NormalSamples {
 public:
  explicit MaskedSamples(int64_t other) : NormalSamples(20, Dims{1, 3, 8, 8}), other_(other) {}
  std::optional<Tensor> mask(int64_t i) const override {
    return Tensor::of<int32_t>(DataType::kI32, {1, 1}, std::vector<int32_t>{i == other_ ? 1 : 0});
  }

 private:
  int64_t other_;
};

TEST(Tune, AJournalIsOfTheMasks) {
  const auto subject = [](const char* metric, int64_t other) {
    Tuning options = anneal::options();
    options.metric = make_metric(metric);
    return subject_of(options, std::make_shared<MaskedSamples>(other));
  };
  EXPECT_EQ(subject("miou", 3), subject("miou", 3));
  std::set<std::string> subjects;
  for (int64_t other = 0; other <= 20; ++other) subjects.insert(subject("miou", other));
  EXPECT_GE(subjects.size(), 17u);  // but for those to calibrate with, which are not judged
  EXPECT_EQ(subject("cosine", 3), subject("cosine", 4));
}

TEST(Tune, TimesAreTakenWhereTheTargetIs) {
  Tuning timed = options();
  timed.tuning.modelled_times = false;
  const Frontier frontier = tune(network(), split_samples(samples()), timed).frontier;
  for (const FrontierPoint& point : frontier.points) {
    EXPECT_FALSE(point.is_modelled);
    EXPECT_GT(point.milliseconds, 0);
    EXPECT_GE(point.milliseconds_p99, 0);
    EXPECT_GT(point.engine_bytes, 0u);
    EXPECT_GT(point.memory_bytes, 0u);
  }
}

TEST(Tune, AMetricWithoutADropHasALeastScore) {
  Tuning least = options();
  least.metric = make_metric("sqnr");
  least.tuning.budget = 25;
  const Frontier frontier = tune(network(), split_samples(samples()), least).frontier;
  EXPECT_TRUE(frontier.budget_is_score);
  EXPECT_GE(frontier.points[frontier.chosen].search.score, 25);
}

TEST(Tune, FewSamplesAreWarnedOf) {
  Tuning fine = options();
  fine.tuning.budget = 0.1;
  const Frontier frontier = tune(network(), split_samples(samples()), fine).frontier;
  EXPECT_THAT(frontier.warnings,
              testing::Contains(testing::HasSubstr("more than the budget of 0.1")));
}

TEST(Tune, SplitsEverySampleOnce) {
  const TuneSamples split = split_samples(samples(), 10, 30);
  EXPECT_EQ(split.calibrate->size(), 10);
  EXPECT_EQ(split.search->size(), 30);
  EXPECT_EQ(split.confirm->size(), 80);
  std::set<std::string> names;
  for (const auto& each : {split.calibrate, split.search, split.confirm})
    for (int64_t i = 0; i < each->size(); ++i) EXPECT_TRUE(names.insert(each->name(i)).second);
  EXPECT_EQ(names.size(), 120u);
  EXPECT_THAT(error_of([] { split_samples(samples(), 60, 60); }),
              testing::HasSubstr("cannot be split"));
}

}  // namespace
}  // namespace anneal
