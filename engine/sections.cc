#include "anneal/engine/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/integer.h"

namespace anneal {
namespace {

constexpr uint32_t kVersion = 15;
constexpr size_t kSectionAlignment = 64;
constexpr size_t kPageAlignment = 4096;
constexpr uint32_t kMaxSections = 1024;
constexpr size_t kSectionEntryBytes = 24;
constexpr size_t kHeaderBytes =
    8 + 3 * sizeof(uint32_t);  // magic, version, sections, table checksum

// The alignment of the beginning of a section: data that kernels read is mapped by separate pages.
size_t section_alignment(SectionKind kind) {
  const bool pages = kind == SectionKind::kWeights || kind == SectionKind::kPacked;
  return pages ? kPageAlignment : kSectionAlignment;
}

size_t padding_of(std::span<const std::byte> part) {
  return align_up(part.size(), kSectionAlignment) - part.size();
}

size_t section_size(const SectionBytes& section) {
  size_t size = section.bytes.size();
  for (const auto part : section.parts) size += part.size() + padding_of(part);
  return size;
}

// REQUIRES: count <= kPageAlignment
std::span<const std::byte> zeros(size_t count) {
  static constexpr std::array<std::byte, kPageAlignment> kZeros{};
  return std::span(kZeros).first(count);
}

// f(piece) for all bytes of the section, in order.
template <class F>
void for_pieces(const SectionBytes& section, F&& f) {
  f(std::span<const std::byte>(section.bytes));
  for (const auto part : section.parts) f(part), f(zeros(padding_of(part)));
}

uint32_t checksum_of(const SectionBytes& section) {
  uint32_t crc = 0;
  for_pieces(section, [&](std::span<const std::byte> piece) { crc = crc32c(piece, crc); });
  return crc;
}

// Where the sections begin, and behind them where the file ends.
std::vector<uint64_t> offsets_of(std::span<const SectionBytes> sections) {
  std::vector<uint64_t> offsets;
  uint64_t end = kHeaderBytes + sections.size() * kSectionEntryBytes;
  for (const SectionBytes& section : sections) {
    offsets.push_back(align_up(end, section_alignment(section.kind)));
    end = offsets.back() + section_size(section);
  }
  offsets.push_back(end);
  return offsets;
}

std::vector<std::byte> header_of(const FileKind& file, std::span<const SectionBytes> sections,
                                 std::span<const uint64_t> offsets,
                                 std::span<const uint32_t> checksums) {
  ByteWriter table;
  for (size_t i = 0; i < sections.size(); ++i) {
    table.number(static_cast<uint32_t>(sections[i].kind));
    table.number(checksums[i]);
    table.number(offsets[i]);
    table.number(uint64_t{section_size(sections[i])});
  }
  const auto table_bytes = table.take();
  const auto count = static_cast<uint32_t>(sections.size());
  ByteWriter header;
  header.raw(std::as_bytes(std::span(file.magic)));
  header.number(kVersion);
  header.number(count);
  header.number(crc32c(table_bytes, count));
  header.raw(table_bytes);
  return header.take();
}

std::vector<uint32_t> checksums_of(std::span<const SectionBytes> sections) {
  std::vector<uint32_t> checksums;
  for (const SectionBytes& section : sections) checksums.push_back(checksum_of(section));
  return checksums;
}

// Bytes whose checksum is computed while they are in the cache, and then are written.
constexpr size_t kAtOnce = 128 << 10;
// Written between two reports: at least this, and a part of the file.
constexpr uint64_t kReportedBytes = 64 << 20, kReports = 20;

}  // namespace

std::vector<std::byte> save_sections(const FileKind& file, std::span<const SectionBytes> sections) {
  const std::vector<uint64_t> offsets = offsets_of(sections);
  std::vector<std::byte> bytes = header_of(file, sections, offsets, checksums_of(sections));
  bytes.reserve(offsets.back());
  for (size_t i = 0; i < sections.size(); ++i) {
    bytes.resize(offsets[i]);
    for_pieces(sections[i], [&](std::span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    });
  }
  return bytes;
}

size_t write_sections(const std::string& path, const FileKind& file,
                      std::span<const SectionBytes> sections, const WriteProgress& progress) {
  const std::vector<uint64_t> offsets = offsets_of(sections);
  const uint64_t total = offsets.back();
  fill_file_atomically(path, [&](FileSink& to) {
    // The header comes first, and what is not a file takes it first.
    std::vector<uint32_t> checksums(sections.size());
    if (!to.can_rewrite()) checksums = checksums_of(sections);
    uint64_t done = 0, told = 0;
    const auto write = [&](std::span<const std::byte> bytes) {
      to.write(bytes);
      done += bytes.size();
      if (!progress || done - told < std::max(kReportedBytes, total / kReports)) return;
      told = done;
      progress(done, total);
    };
    write(header_of(file, sections, offsets, checksums));
    for (size_t i = 0; i < sections.size(); ++i) {
      write(zeros(offsets[i] - done));
      uint32_t crc = 0;
      for_pieces(sections[i], [&](std::span<const std::byte> piece) {
        for (size_t at = 0; at < piece.size(); at += kAtOnce) {
          const auto some = piece.subspan(at, std::min(kAtOnce, piece.size() - at));
          crc = crc32c(some, crc);
          write(some);
        }
      });
      checksums[i] = crc;
    }
    if (to.can_rewrite()) to.rewrite(0, header_of(file, sections, offsets, checksums));
  });
  return total;
}

std::vector<SectionView> load_sections(const FileKind& file, std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes ||
      std::memcmp(bytes.data(), file.magic.data(), file.magic.size()) != 0)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("this is not an {} (its first bytes differ)", file.name));
  ByteReader header(bytes.subspan(file.magic.size()), "header");
  const auto version = header.number<uint32_t>();
  if (version != kVersion)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the {} has format version {}, this library reads version {}: build the "
                     "engine again from its ONNX file",
                     file.name, version, kVersion));
  const auto count = header.number<uint32_t>();
  const auto crc = header.number<uint32_t>();
  if (count > kMaxSections || count * kSectionEntryBytes > header.left())
    header.refuse("its table of sections is cut off");
  const auto table = bytes.subspan(kHeaderBytes, count * kSectionEntryBytes);
  if (crc32c(table, count) != crc) header.refuse("the checksum of its table of sections differs");

  std::vector<SectionView> sections(count);
  uint64_t end = kHeaderBytes + table.size();
  for (SectionView& section : sections) {
    section.kind = static_cast<SectionKind>(header.number<uint32_t>());
    section.crc = header.number<uint32_t>();
    const auto offset = header.number<uint64_t>(), size = header.number<uint64_t>();
    if (offset != align_up(end, section_alignment(section.kind)) || offset > bytes.size() ||
        size > bytes.size() - offset)
      header.refuse("the file is cut off, or a section lies outside it");
    for (uint64_t at = end; at < offset; ++at)
      if (bytes[at] != std::byte{0}) header.refuse("padding between sections is not zero");
    section.bytes = bytes.subspan(offset, size);
    end = offset + size;
  }
  if (end != bytes.size()) header.refuse("bytes follow the last section");
  return sections;
}

void check_section(const FileKind& file, const SectionView& section, ThreadTeam* team) {
  if ((team ? crc32c(section.bytes, *team) : crc32c(section.bytes)) != section.crc)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the {} is damaged: the checksum of section {} differs", file.name,
                     static_cast<uint32_t>(section.kind)));
}

}  // namespace anneal
