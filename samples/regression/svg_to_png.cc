// svg_to_png PICTURE.svg PICTURE.png
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "write_png.h"

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::printf("usage: svg_to_png PICTURE.svg PICTURE.png\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + std::string(argv[1]));
  write_png({std::istreambuf_iterator<char>(file), {}}, argv[2]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "svg_to_png: %s\n", error.what());
  return 1;
}
