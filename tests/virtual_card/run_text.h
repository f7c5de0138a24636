// PTX of tests, run on memory of tests.
#pragma once
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/ptx/decode.h"
#include "anneal/tests/virtual_card/ptx/launch.h"

namespace anneal::ptx {

// A function of one parameter, the address of memory, in %rd1. Registers: %p %rs %r %f %rd %fd, 40
// each.
inline std::string program(const std::string& body, const std::string& declared = "") {
  return fmt::format(
      ".version 9.0\n.target sm_90\n.address_size 64\n{}\n"
      ".visible .entry f(.param .u64 f_param_0)\n{{\n"
      ".reg .pred %p<40>;\n.reg .b16 %rs<40>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n"
      ".reg .b64 %rd<40>;\n.reg .f64 %fd<40>;\n"
      "ld.param.u64 %rd1, [f_param_0];\nmov.u32 %r1, %tid.x;\n{}\nret;\n}}\n",
      declared, body);
}

struct Card {
  GlobalMemory memory;
  Arithmetic arithmetic;

  // Memory of these bytes, written.
  template <class T>
  uint64_t upload(const std::vector<T>& values) {
    const uint64_t address = memory.allocate(values.size() * sizeof(T));
    GlobalMemory::Allocation& made = *memory.find(address);
    std::memcpy(made.data.get(), values.data(), made.bytes);
    std::memset(made.written.get(), 1, made.bytes);
    return address;
  }
  template <class T>
  std::vector<T> download(uint64_t address) const {
    const GlobalMemory::Allocation& of = *memory.find(address);
    std::vector<T> values(of.bytes / sizeof(T));
    std::memcpy(values.data(), of.data.get(), of.bytes);
    return values;
  }
  uint64_t run(const std::string& text, uint64_t parameter, Launch launch = {}) {
    const TextModule module = parse(text);
    const Function function = decode(module, module.functions.at(0));
    return ptx::run(function, reinterpret_cast<const std::byte*>(&parameter), launch, memory,
                    arithmetic);
  }
};

}  // namespace anneal::ptx
