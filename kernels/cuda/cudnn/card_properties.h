// Properties of cards as cuDNN reads them, for plans that are made on another machine.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace anneal::cuda {

// Public figures of a card.
struct CardProperties {
  std::string_view name;  // as in DeviceSpec where that has the card: "H100 SXM"
  std::string_view device_name;
  int architecture, multiprocessors;
  int shared_bytes_per_block;  // the most a launch may ask for
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int64_t memory_bytes;
  int clock_khz, memory_clock_khz, l2_bytes;
};
std::span<const CardProperties> card_properties();
const CardProperties* find_card(std::string_view name);  // null: none
std::string json_of(const CardProperties& card);

// What a plan depends on. Cards of one architecture differ in it.
struct PropertyFigures {
  int architecture = 0, multiprocessors = 0, shared_bytes_per_block = 0;
  bool operator==(const PropertyFigures&) const = default;
};
// Nullopt if the text, which may be any, lacks one.
std::optional<PropertyFigures> figures_of(std::string_view json);
std::string to_string(const PropertyFigures& figures);

}  // namespace anneal::cuda
