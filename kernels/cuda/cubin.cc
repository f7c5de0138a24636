#include "anneal/kernels/cuda/cubin.h"

#include <elf.h>

#include <cstring>
#include <vector>

namespace anneal::cuda {
namespace {

bool fits(std::span<const std::byte> file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset;
}

// `count` structs at `offset`; none if they do not all lie in the file.
template <class T>
std::vector<T> read(std::span<const std::byte> file, uint64_t offset, uint64_t count) {
  if (count > file.size() / sizeof(T) || !fits(file, offset, count * sizeof(T))) return {};
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), file.data() + offset, count * sizeof(T));
  return values;
}

}  // namespace

bool is_whole_cubin(std::span<const std::byte> cubin) {
  const auto headers = read<Elf64_Ehdr>(cubin, 0, 1);
  if (headers.empty()) return false;
  const Elf64_Ehdr& header = headers[0];
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)))
    return false;
  const auto sections = read<Elf64_Shdr>(cubin, header.e_shoff, header.e_shnum);
  const auto segments = read<Elf64_Phdr>(cubin, header.e_phoff, header.e_phnum);
  if (sections.empty() || segments.size() != header.e_phnum) return false;
  for (const Elf64_Shdr& section : sections)
    if (section.sh_type != SHT_NOBITS && !fits(cubin, section.sh_offset, section.sh_size))
      return false;
  for (const Elf64_Phdr& segment : segments)
    if (!fits(cubin, segment.p_offset, segment.p_filesz)) return false;
  return header.e_shstrndx < sections.size();
}

}  // namespace anneal::cuda
