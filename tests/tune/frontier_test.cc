// A frontier as a table, CSV, JSON and a picture; and invalid JSON.
#include "anneal/engine/tune/frontier/frontier_forms.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "anneal/core/fail.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

FrontierPoint point(std::string name, const std::string& precisions, double milliseconds,
                    MeasuredScore score, bool is_on_frontier) {
  FrontierPoint point;
  point.name = std::move(name);
  for (const char c : precisions)
    point.precisions.push_back(c == '8'   ? Precision::kI8
                               : c == 'b' ? Precision::kBF16
                               : c == 'h' ? Precision::kF16
                                          : Precision::kF32);
  point.output_error = 1e-3 * std::max(score.drop, 0.0);
  point.search = score;
  point.confirmed = score;
  point.confirmed->samples = 2500;
  point.milliseconds = milliseconds;
  point.milliseconds_p99 = milliseconds * 1.08;
  point.engine_bytes = 25'600'000;
  point.memory_bytes = 4'400'000;
  point.is_on_frontier = is_on_frontier;
  return point;
}

Frontier example() {
  Frontier frontier;
  frontier.model = "resnet50";
  frontier.target = "cpu-avx512-vnni";
  frontier.metric = "top-1";
  frontier.unit = "%";
  frontier.budget = 0.5;
  frontier.threads = 2;
  frontier.groups = {{"conv_1", {"conv_1"}, "", true},
                     {"conv_2 and 2 more", {"conv_2", "conv_3", "conv_4"}, "one sum", true},
                     {"fc", {"fc"}, "", true}};
  const auto score = [](double drop, double low, double high) {
    return MeasuredScore{1500, 76.13 - drop, drop, low, high};
  };
  frontier.points = {point("int8", "888", 9.31, score(3.4, 2.5, 4.3), true),
                     point("mix-1", "88f", 10.2, score(1.1, 0.5, 1.7), true),
                     point("mix-2", "88b", 10.9, score(0.7, 0.2, 1.3), true),
                     point("mix-3", "b8b", 13.4, score(0.4, -0.1, 0.8), true),
                     point("bf16", "bbb", 16.8, score(0.1, -0.1, 0.3), true),
                     point("mix-4", "f8b", 17.1, score(0.5, 0.1, 0.9), false),
                     point("mix-5", "f8f", 19.4, score(-0.05, -0.2, 0.1), true),
                     point("f32", "fff", 28.6, score(0, 0, 0), true)};
  frontier.chosen = 3;
  frontier.kept_high = {{0, Precision::kBF16, "8 bits would save 1.2 ms"},
                        {2, Precision::kBF16, "8 bits would save 1.2 ms"}};
  frontier.warnings = {"one of 1500 samples is 0.067 points"};
  frontier.symmetric = true;
  frontier.calibration = "x -1 2\n\"quoted\"\n";
  return frontier;
}

Frontier modelled() {
  Frontier frontier = example();
  for (FrontierPoint& point : frontier.points) {
    point.is_modelled = true;
    point.memory_bytes = 0;
    point.confirmed.reset();
  }
  return frontier;
}

// --- JSON

TEST(FrontierJson, RoundTrips) {
  Frontier frontier = example();
  frontier.points[1].confirmed.reset();
  frontier.points[7].search = {3, kInf, kNaN, -kInf, 0.1 + 0.2};
  frontier.points[0].claimed = 0.1 + 0.2;
  frontier.points[0].command = "anneal build \"m.onnx\" --mix f.json:int8";
  frontier.points[0].engine_bytes = std::numeric_limits<uint64_t>::max();
  frontier.model = "m\xC3\xA4nn\n\"<&>";
  const std::string text = frontier_json(frontier);
  const Frontier read = parse_frontier(text);
  EXPECT_EQ(frontier_json(read), text);
  EXPECT_EQ(read.model, frontier.model);
  EXPECT_EQ(read.points[2].precisions, frontier.points[2].precisions);
  EXPECT_EQ(read.points[0].engine_bytes, frontier.points[0].engine_bytes);
  EXPECT_EQ(read.points[0].command, frontier.points[0].command);
  EXPECT_FALSE(read.points[1].confirmed);
  EXPECT_EQ(read.points[0].claimed, 0.1 + 0.2);
  EXPECT_FALSE(read.points[1].claimed);
  EXPECT_EQ(read.points[7].search.score, kInf);
  EXPECT_TRUE(std::isnan(read.points[7].search.drop));
  EXPECT_EQ(read.points[7].search.drop_low, -kInf);
  EXPECT_EQ(read.points[7].search.drop_high, 0.1 + 0.2);
  EXPECT_EQ(read.groups[1].layers, frontier.groups[1].layers);
  EXPECT_EQ(read.kept_high[1].group, 2U);
  EXPECT_EQ(read.kept_high[1].precision, Precision::kBF16);
  EXPECT_EQ(read.warnings, frontier.warnings);
  EXPECT_EQ(read.calibration, frontier.calibration);
  EXPECT_EQ(read.chosen, 3U);
  EXPECT_EQ(read.threads, 2);
  EXPECT_TRUE(read.symmetric);
}

TEST(FrontierJson, BytesThatAreNotUtf8AreReplaced) {
  Frontier frontier = example();
  frontier.model = "a\xFFz";
  EXPECT_EQ(parse_frontier(frontier_json(frontier)).model, "a\xEF\xBF\xBDz");
}

std::string refusal(std::string_view json) {
  try {
    parse_frontier(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "it was accepted";
}

TEST(FrontierJson, RefusesWhatIsNoJson) {
  const std::string text = frontier_json(example());
  for (size_t size = 0; size + 2 < text.size(); size += 7)
    EXPECT_THAT(refusal(text.substr(0, size)), HasSubstr("it is no JSON"));
  EXPECT_THAT(refusal("\xFF\xFE"), HasSubstr("it is no JSON"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("it is no JSON"));
  EXPECT_THAT(refusal(R"({"budget": 1e999})"), HasSubstr("it is no JSON"));
  for (const char* other : {"null", "[]", "3", "\"f32\""})
    EXPECT_THAT(refusal(other), HasSubstr("it is no object"));
}

TEST(FrontierJson, RefusesEachWrongField) {
  struct Case {
    const char* where;
    Json value;
    const char* want;
  };
  const Case cases[] = {
      {"/format", "anneal frontier 2", "format: it is not \"anneal frontier 1\""},
      {"/format", 1, "format: it is no text"},
      {"/model", nullptr, "model: it is no text"},
      {"/threads", -1, "threads: it is no whole number from 0 on"},
      {"/threads", 1.5, "threads: it is no whole number from 0 on"},
      {"/threads", 1ULL << 40, "threads: 1099511627776 is too much"},
      {"/budget", "0.5", "budget: it is no number"},
      {"/budget_is_score", 0, "budget_is_score: it is neither true nor false"},
      {"/chosen", 8, "chosen: there is no 8 among 8, counted from 0"},
      {"/chosen", -1, "chosen: it is no whole number from 0 on"},
      {"/chosen", "mix-3", "chosen: it is no whole number from 0 on"},
      {"/points", Json::object(), "points: it is no list"},
      {"/points", Json::array(), "chosen: there is no 3 among 0"},
      {"/points/2", 7, "points[2]: it is no object"},
      {"/points/2/name", "int8", "points: several are called \"int8\""},
      {"/points/2/milliseconds", -1, "points[2].milliseconds: it is below 0"},
      {"/points/2/milliseconds", "inf", "points[2].milliseconds: it is no number"},
      {"/points/2/precisions", {"f32"}, "points[2].precisions: there are 1 for 3 groups"},
      {"/points/2/precisions/1", "fp8", "points[2].precisions[1]: it is none of \"f32\""},
      {"/points/2/precisions/1", 8, "points[2].precisions[1]: it is no text"},
      {"/points/2/search", nullptr, "points[2].search: it is no object"},
      {"/points/2/search/score", "good", "points[2].search.score: it is neither a number nor"},
      {"/points/2/search/samples", -4, "points[2].search.samples: it is no whole number"},
      {"/points/2/search/samples", 1ULL << 63, "points[2].search.samples: 9223372036854775808"},
      {"/points/2/confirmed", true, "points[2].confirmed: it is no object"},
      {"/points/2/claimed", true, "points[2].claimed: it is no number"},
      {"/points/2/extra", 1, "points[2]: there is no field \"extra\""},
      {"/groups/0/layers", "conv", "groups[0].layers: it is no list"},
      {"/groups/0/layers/0", 1, "groups[0].layers[0]: it is no text"},
      {"/groups/3", {{"name", "x"}}, "groups[3]: \"layers\" is missing"},
      {"/kept_high/0/group", 3, "kept_high[0].group: there is no 3 among 3"},
      {"/kept_high/0/precision", "", "kept_high[0].precision: it is none of"},
      {"/warnings/0", Json::array(), "warnings[0]: it is no text"},
  };
  for (const Case& each : cases) {
    Json json = Json::parse(frontier_json(example()));
    json[Json::json_pointer(each.where)] = each.value;
    EXPECT_THAT(refusal(json.dump()), HasSubstr(each.want)) << each.where;
  }
}

TEST(FrontierJson, RefusesEachMissingField) {
  const Json whole = Json::parse(frontier_json(example()));
  for (const char* where : {"", "/points/0", "/points/0/search", "/groups/0", "/kept_high/0"})
    for (const auto& [key, value] : whole[Json::json_pointer(where)].items()) {
      Json json = whole;
      json[Json::json_pointer(where)].erase(key);
      EXPECT_THAT(refusal(json.dump()), HasSubstr(fmt::format("\"{}\" is missing", key)));
    }
}

// --- For people and for spreadsheets

TEST(FrontierTable, HasALineForEachPoint) {
  const std::string table = frontier_table(example());
  EXPECT_THAT(table, HasSubstr("resnet50 on cpu-avx512-vnni, 2 threads\n"
                               "top-1 of 1500 samples searched with, confirmed on 2500 others; "
                               "budget: a drop of 0.5 points\n"));
  EXPECT_THAT(table, HasSubstr("\n   * int8     9.31  10.05   3.07x  72.73"));
  EXPECT_THAT(table, HasSubstr("\n-> * mix-3   13.40  14.47   2.13x  75.73"));
  EXPECT_THAT(table, HasSubstr("\n     mix-4   17.10  18.47   1.67x  75.63"));
  EXPECT_THAT(table, HasSubstr("75.73   0.40 (-0.10 to 0.80)"));
  EXPECT_THAT(table, HasSubstr("25.6 MB  4.4 MB\n"));
  EXPECT_THAT(table, HasSubstr("mix-3: 2.1x as fast as f32, loses 0.40 points (95 %: -0.10 to "
                               "0.80), on 2500 samples held out from the search\n"));
  EXPECT_THAT(table, HasSubstr("Kept high: 2 of 3 groups of layers\n"
                               "  conv_1  bf16  8 bits would save 1.2 ms (1 other, too)\n"));
  EXPECT_THAT(table, HasSubstr("\nwarning: one of 1500 samples is 0.067 points\n"));
  EXPECT_THAT(table, Not(HasSubstr("modelled")));
}

TEST(FrontierTable, ShowsWhatIsModelled) {
  const std::string table = frontier_table(modelled());
  EXPECT_THAT(table, HasSubstr("int8    ~9.31    -   3.07x"));
  EXPECT_THAT(table, HasSubstr("~: modelled, not measured"));
  EXPECT_THAT(table, HasSubstr("2.1x as fast as f32, modelled, loses"));
  EXPECT_THAT(table, Not(HasSubstr("confirmed")));
  Frontier half = modelled();
  half.points[7].is_modelled = false;  // what is modelled says nothing of what is measured
  EXPECT_THAT(frontier_table(half), Not(HasSubstr("3.07x")));
}

TEST(FrontierTable, ShowsTheFirstOfManyReasons) {
  Frontier frontier = example();
  frontier.kept_high.clear();
  for (int i = 0; i < 20; ++i)
    frontier.kept_high.push_back({1, Precision::kF32, fmt::format("reason {}", i)});
  const std::string table = frontier_table(frontier);
  EXPECT_THAT(table, HasSubstr("reason 11\n  and 8 more\n"));
  EXPECT_THAT(table, Not(HasSubstr("reason 12")));
}

TEST(FrontierTable, OfAScoreWithoutDrops) {
  Frontier frontier = example();
  frontier.metric = "sqnr";
  frontier.unit = "dB";
  frontier.budget = 30;
  frontier.budget_is_score = true;
  frontier.points[7].search.score = kInf;
  const std::string table = frontier_table(frontier);
  EXPECT_THAT(table, HasSubstr("budget: 30 dB or more"));
  EXPECT_THAT(table, HasSubstr("  inf  "));
  EXPECT_THAT(table, HasSubstr("as fast as f32, sqnr 75.73 dB, on 2500 samples"));
  EXPECT_THAT(table, Not(HasSubstr("drop")));
}

std::vector<double> claims(const Frontier& frontier) {
  std::vector<double> claims;
  for (const FrontierPoint& point : frontier.points) claims.push_back(point.claimed.value_or(-1));
  return claims;
}

TEST(FrontierClaims, NoSlowerPointClaimsLess) {
  Frontier frontier = example();
  const auto with_scores = [&](const std::vector<double>& scores) {
    for (size_t i = 0; i < scores.size(); ++i) frontier.points[i].confirmed->score = scores[i];
    claim_scores(frontier);
    return claims(frontier);
  };
  // The sixth is off the frontier, so that nothing is claimed of it, nor is it looked at.
  EXPECT_THAT(with_scores({72, 74, 75, 75.5, 76, 1, 76.1, 76.2}),
              ElementsAre(72, 74, 75, 75.5, 76, -1, 76.1, 76.2));
  EXPECT_THAT(with_scores({77, 75, 76, 74, 75.5, 1, 76.5, 76}),
              ElementsAre(74, 74, 74, 74, 75.5, -1, 76, 76));
  EXPECT_THAT(with_scores({70, kNaN, kInf, 74, -kInf, 1, kInf, 76}),
              ElementsAre(-kInf, -1, -kInf, -kInf, -kInf, -1, 76, 76));
  // Where not all are confirmed, the scores of the samples searched with are compared.
  frontier.points[5].confirmed.reset();
  for (FrontierPoint& each : frontier.points) each.search.score = 50;
  frontier.points[7].search.score = 40;
  claim_scores(frontier);
  EXPECT_THAT(claims(frontier), ElementsAre(40, 40, 40, 40, 40, -1, 40, 40));
}

TEST(FrontierClaims, AreShown) {
  Frontier frontier = example();
  frontier.points[1].confirmed->score = 70;
  EXPECT_THAT(frontier_table(frontier), Not(HasSubstr("claimed")));
  claim_scores(frontier);
  EXPECT_THAT(
      frontier_table(frontier),
      AllOf(HasSubstr("\n   * int8     9.31  10.05   3.07x    70.00  72.73"),
            HasSubstr("\n     mix-4   17.10  18.47   1.67x        -  75.63"),
            HasSubstr("claimed: the confirmed score that it and all slower points * reach\n")));
  EXPECT_THAT(frontier_csv(frontier), HasSubstr(",2.5,4.3,70,0.0034,"));
  for (FrontierPoint& each : frontier.points) each.confirmed.reset();
  EXPECT_THAT(frontier_table(frontier), HasSubstr("claimed: the score that it"));
}

TEST(FrontierSummary, SaysGainsAndNothings) {
  Frontier frontier = example();
  frontier.points[3].confirmed->drop = -0.24;
  EXPECT_EQ(summarize(frontier).loss, "gains 0.24 points (95 %: -0.80 to 0.10)");
  frontier.points[3].confirmed->drop = -0.001;
  EXPECT_EQ(summarize(frontier).loss, "loses 0.00 points (95 %: -0.10 to 0.80)");
  *frontier.points[3].confirmed = {2500, 75.3, 0.83, -0.2, 1.64};
  EXPECT_EQ(summarize(frontier).loss, "loses 0.8 points (95 %: -0.2 to 1.6)");
  frontier.chosen = 7;
  EXPECT_EQ(summarize(frontier).speed, "f32: no faster mix meets the budget");
  EXPECT_EQ(summarize(frontier).loss, "");
  frontier.points.pop_back();
  frontier.chosen = 3;
  EXPECT_EQ(summarize(frontier).speed, "mix-3");
}

TEST(FrontierCsv, QuotesWhatNeedsIt) {
  Frontier frontier = example();
  frontier.points[0].name = "a,\"b\"\nc";
  frontier.points[1].confirmed.reset();
  const std::string csv = frontier_csv(frontier);
  EXPECT_THAT(csv, StartsWith("point,chosen,on_frontier,median_ms,"));
  EXPECT_THAT(csv, HasSubstr("\n\"a,\"\"b\"\"\nc\",0,1,9.31,"));
  EXPECT_THAT(csv, HasSubstr(",76.13,0,0,0,2500,76.13,0,0,0,,0,25600000,4400000,3,0,0,0,\n"));
  EXPECT_THAT(csv, HasSubstr("\nmix-3,1,1,13.4,"));
  EXPECT_THAT(csv, HasSubstr(",0.5,1.7,,,,,,,0.0011"));
  const size_t fields = static_cast<size_t>(std::ranges::count(csv.substr(0, csv.find('\n')), ','));
  const std::string last = csv.substr(csv.rfind("\nf32"));
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(last, ',')), fields);
}

// --- The picture

// Why the text is no well-formed XML; empty: it is.
std::string fault_of(std::string_view xml) {
  std::vector<std::string> open;
  bool had_root = false;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const std::string_view name = xml.substr(at, xml.find(';', at) + 1 - at);
      if (name != "&amp;" && name != "&lt;" && name != "&gt;" && name != "&quot;")
        return fmt::format("an unknown entity at {}", at);
    }
    if (static_cast<uint8_t>(xml[at]) < 0x20 && xml[at] != '\n')
      return fmt::format("a control character at {}", at);
    if (xml[at] == '>') return fmt::format("a stray > at {}", at);
    if (xml[at] != '<') {
      ++at;
      continue;
    }
    const size_t end = xml.find('>', at);
    if (end == std::string_view::npos) return "a tag without an end";
    const std::string_view tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string_view::npos) return fmt::format("a stray < at {}", at);
    if (std::ranges::count(tag, '"') % 2 != 0) return fmt::format("an open quote at {}", at);
    const std::string name(tag.substr(0, tag.find_first_of(" />", 1)));
    if (open.empty() && had_root) return "a second root";
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return fmt::format("{} at {}", name, at);
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    had_root = true;
    at = end + 1;
  }
  return open.empty() ? "" : fmt::format("{} is left open", open.back());
}

std::string drawn(const Frontier& frontier) {
  std::string svg = frontier_svg(frontier);
  EXPECT_EQ(fault_of(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("\"inf")));
  return svg;
}

size_t count_of(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(FrontierPicture, DrawsAllPoints) {
  const std::string svg = drawn(example());
  EXPECT_EQ(count_of(svg, "ms, "), 8U);
  for (const char* name : {"int8", "mix-1", "mix-2", "bf16", "mix-4", "mix-5", "f32"})
    EXPECT_THAT(svg, HasSubstr(fmt::format(">{}</text>", name)));
  EXPECT_THAT(svg, HasSubstr(">mix-3: 2.1x as fast as f32</text>"));
  EXPECT_THAT(svg, HasSubstr(">loses 0.40 points (95 %: -0.10 to 0.80)</text>"));
  EXPECT_THAT(svg, HasSubstr("the budget: 0.5 points below f32"));
  EXPECT_EQ(count_of(svg, "linecap"), 6U);  // of the frontier of 7
}

TEST(FrontierPicture, ScoresFarBelowAreAtTheEdge) {
  Frontier frontier = example();
  frontier.points[0].confirmed = {2500, 0.1, 76.03, 75, 77};
  const std::string svg = drawn(frontier);
  EXPECT_THAT(svg, HasSubstr(">int8: 0.1 %</text>"));
  frontier.chosen = 0;  // is seen
  EXPECT_THAT(drawn(frontier), Not(HasSubstr(">int8: 0.1 %</text>")));
}

TEST(FrontierPicture, NamesAreText) {
  Frontier frontier = example();
  frontier.model = "a<b>&\"c\" \x01\xFF\xED\xA0\x80";
  for (FrontierPoint& point : frontier.points) point.name += "</text><script>";
  const std::string svg = drawn(frontier);
  EXPECT_THAT(svg, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot; "));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
}

TEST(FrontierPicture, OfDegenerateFrontiers) {
  const std::pair<const char*, std::function<void(Frontier&)>> cases[] = {
      {"one point", [](Frontier& f) { f.points = {f.points[7]}, f.chosen = 0; }},
      {"no points", [](Frontier& f) { f.points.clear(); }},
      {"no f32", [](Frontier& f) { f.points.pop_back(); }},
      {"equal latencies",
       [](Frontier& f) {
         for (auto& p : f.points) p.milliseconds = 2;
       }},
      {"no latencies",
       [](Frontier& f) {
         for (auto& p : f.points) p.milliseconds = 0;
       }},
      {"equal scores",
       [](Frontier& f) {
         for (auto& p : f.points) p.confirmed = {9, 5, 0, 0, 0};
       }},
      {"no scores",
       [](Frontier& f) {
         for (auto& p : f.points) p.confirmed->score = kNaN;
       }},
      {"endless scores",
       [](Frontier& f) {
         for (auto& p : f.points) p.confirmed->score = kInf;
       }},
      {"endless drops",
       [](Frontier& f) {
         for (auto& p : f.points) p.confirmed->drop_low = kInf;
       }},
      {"large scores", [](Frontier& f) { f.points[0].confirmed->score = -1e308; }},
      {"endless latency", [](Frontier& f) { f.points[3].milliseconds = kInf; }},
      {"a budget of nothing", [](Frontier& f) { f.budget = 0; }},
      {"a large budget", [](Frontier& f) { f.budget = 1e9; }},
      {"an endless budget", [](Frontier& f) { f.budget = kInf; }},
      {"tiny differences",
       [](Frontier& f) {
         for (auto& p : f.points) p.confirmed->score = 1e14;
       }},
      {"a crowd", [](Frontier& f) { f.points.resize(300, f.points[4]); }},
      {"no groups", [](Frontier& f) { f.groups.clear(), f.kept_high.clear(); }},
  };
  for (const auto& [what, change] : cases) {
    SCOPED_TRACE(what);
    Frontier frontier = example();
    change(frontier);
    drawn(frontier);
    EXPECT_FALSE(frontier_table(frontier).empty());
    EXPECT_FALSE(frontier_csv(frontier).empty());
  }
}

// Samples that rejected mixes have influenced the choice, and every output says so.
TEST(Frontier, SamplesThatChoseAreSaidToHave) {
  Frontier frontier = example();
  EXPECT_EQ(what_confirms(frontier), "held out from the search");
  frontier.turned_down = 1;
  EXPECT_EQ(what_confirms(frontier), "which rejected 1 faster mix");
  frontier.turned_down = 2;
  for (const std::string& told : {frontier_table(frontier), frontier_svg(frontier)}) {
    EXPECT_THAT(told, HasSubstr("which rejected 2 faster mixes"));
    EXPECT_THAT(told, Not(HasSubstr("held out")));
  }
  EXPECT_EQ(parse_frontier(frontier_json(frontier)).turned_down, 2);
}

}  // namespace
}  // namespace anneal::testing
