#include "anneal/cli/commands/bench_decode.h"

#include <fmt/format.h>

#include "anneal/cli/measure/decoder.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/stopwatch.h"
#include "anneal/core/version.h"

namespace anneal {
namespace {

struct LengthTimes {
  int64_t length = 0;
  double prompt_milliseconds = 0, token_milliseconds = 0;  // medians
  uint64_t cache_bytes = 0;
  bool is_in_place = false, is_kept = false;
};

double median_time(Decoder& decoder, int64_t tokens, int64_t past, const Amount& amount) {
  decoder.bind(tokens, past);
  std::vector<double> milliseconds;
  const Stopwatch watch;
  const auto goes_on = [&] {
    const auto taken = static_cast<int>(milliseconds.size());
    if (taken < kFewestRuns) return true;
    return amount.runs ? taken < *amount.runs : watch.seconds() < amount.seconds;
  };
  while (goes_on()) {
    decoder.prepare_run();
    const Stopwatch run;
    decoder.run();
    milliseconds.push_back(run.milliseconds());
  }
  return median(milliseconds);
}

double per_second(int64_t tokens, double milliseconds) {
  return 1e3 * static_cast<double>(tokens) / milliseconds;
}

std::string table_of_lengths(const std::vector<LengthTimes>& times) {
  Rows rows = {{"tokens", "prompt", "tokens/s", "next token", "tokens/s", "caches"}};
  for (const LengthTimes& each : times)
    rows.push_back({std::to_string(each.length), milliseconds_text(each.prompt_milliseconds),
                    rate_text(per_second(each.length, each.prompt_milliseconds)),
                    milliseconds_text(each.token_milliseconds),
                    rate_text(per_second(1, each.token_milliseconds)),
                    bytes_text(each.cache_bytes)});
  return table_text(rows, {true, true, true, true, true, true});
}

std::string_view caches_text(const LengthTimes& times) {
  if (times.is_kept) return "kept by the context";
  return times.is_in_place ? "updated in place" : "written by each run to memory of their own";
}

Json json_of_lengths(const std::vector<LengthTimes>& times) {
  Json json = Json::array();
  for (const LengthTimes& each : times)
    json.push_back({{"tokens", each.length},
                    {"prompt_milliseconds", each.prompt_milliseconds},
                    {"next_token_milliseconds", each.token_milliseconds},
                    {"prompt_tokens_per_second", per_second(each.length, each.prompt_milliseconds)},
                    {"tokens_per_second", per_second(1, each.token_milliseconds)},
                    {"cache_bytes", each.cache_bytes},
                    {"caches_in_place", each.is_in_place},
                    {"caches_kept_by_context", each.is_kept}});
  return json;
}

}  // namespace

void bench_decode(const std::shared_ptr<const Engine>& engine, const BenchDecodeSource& source,
                  const std::vector<int64_t>& lengths, const ContextOptions& options,
                  const Amount& amount) {
  Decoder decoder(engine, options);
  const Amount of_time{amount.runs, amount.seconds / static_cast<double>(2 * lengths.size())};
  std::vector<LengthTimes> times;
  for (const int64_t length : lengths) {
    LengthTimes each{.length = length};
    each.prompt_milliseconds = median_time(decoder, length, 0, of_time);
    each.token_milliseconds = median_time(decoder, 1, length, of_time);
    each.cache_bytes = decoder.cache_bytes();
    each.is_in_place = decoder.is_in_place();
    each.is_kept = decoder.keeps_states();
    times.push_back(each);
  }
  const int threads = thread_count(options.threads);
  if (!source.json.empty())
    write_json(source.json, {{"anneal", version()},
                             {"machine", engine->device()},
                             {"file", source.path},
                             {"threads", threads},
                             {"decode", json_of_lengths(times)}});
  fmt::print("{:<11} {}\n{:<11} {}, at most {}\n\n{}", "model", printable(source.path), "machine",
             printable(engine->device()), count_text(static_cast<uint64_t>(threads), "thread"),
             table_of_lengths(times));
  fmt::print("\ncaches      {}\n", caches_text(times.back()));
}

}  // namespace anneal
