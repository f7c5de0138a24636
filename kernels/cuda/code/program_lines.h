// Lines of a program (code.h) as file and line, for readers of its source files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/kernels/cuda/device/emulator.h"

namespace anneal::cuda {

struct ProgramLine {
  std::string file;  // of device/: "mma.h"; empty: the function's own text
  int line;          // from 1
  std::string text;  // without the spaces before it
};

// The lines of one function of a program.
class ProgramLines {
 public:
  // REQUIRES: both outlive this
  ProgramLines(std::string_view function, std::string_view program);
  ProgramLine at(emulator::Site site) const;
  std::string parameter(int number) const;  // its name, or its number if the text tells none

 private:
  struct Header {
    std::string_view name;
    int before;  // lines of the program before its first
    int lines;
  };
  std::string_view function_, program_, own_;  // the function's own text
  std::vector<Header> headers_;
  std::vector<std::string_view> parameters_;
};

}  // namespace anneal::cuda
