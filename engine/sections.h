// Files of sections with checksums: an engine file, and the file of an engine's weights. Layout:
// docs/plan_format.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anneal/core/file.h"

namespace anneal {

class ThreadTeam;

enum class SectionKind : uint32_t {
  kInfo = 1,
  kPlan = 2,
  kWeightIndex = 3,
  kWeights = 4,
  kPackedIndex = 5,
  kPacked = 6,
  kRecipe = 7,
  kPlanDigest = 8,  // of an engine whose weights are in a file of their own; in both files
};

struct FileKind {
  std::string_view magic;  // the first 8 bytes
  std::string_view name;   // for errors: "engine file"
};
inline constexpr FileKind kEngineFile = {
    "\x89"
    "ANNEAL\n",
    "engine file"};
inline constexpr FileKind kWeightsFile = {
    "\x89"
    "ANNWTS\n",
    "file of weights"};

// The parts, if any, follow the bytes, each at a multiple of 64, and zeros fill the last one up.
// They are memory of others.
struct SectionBytes {
  SectionKind kind;
  std::vector<std::byte> bytes;
  std::vector<std::span<const std::byte>> parts = {};
};

std::vector<std::byte> save_sections(const FileKind& file, std::span<const SectionBytes> sections);

// Writes what save_sections() gives, and computes the checksums on the way. Returns its size.
size_t write_sections(const std::string& path, const FileKind& file,
                      std::span<const SectionBytes> sections, const WriteProgress& progress);

struct SectionView {
  SectionKind kind;
  std::span<const std::byte> bytes;
  uint32_t crc;
};
// Checks everything but the checksums of the sections. Fails with kIncompatiblePlan.
std::vector<SectionView> load_sections(const FileKind& file, std::span<const std::byte> bytes);
// Fails with kIncompatiblePlan if the section's checksum differs. team: its threads compute it;
// null: the caller does.
void check_section(const FileKind& file, const SectionView& section, ThreadTeam* team);

}  // namespace anneal
