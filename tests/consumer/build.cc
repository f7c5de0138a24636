// A program that builds engines: links anneal::builder.
#include <anneal/engine/build/onnx_builder.h>

#include <iostream>

int main(int, char** argv) {
  try {
    anneal::build_engine(
        argv[1], argv[2],
        {.input_bounds = {{"image", {{1, 1, 32, 32}, {1, 1, 32, 32}, {8, 1, 32, 32}}}}});
  } catch (const anneal::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
