#include <anneal/anneal.h>

#include <iostream>
#include <vector>

// Two runs at a time, each on a stream of its own.
int main() {
  auto engine = anneal::Engine::load("glyphs.engine");
  const anneal::Stream streams[] = {anneal::Stream::make(), anneal::Stream::make()};
  std::vector<float> images[] = {std::vector<float>(32 * 32), std::vector<float>(32 * 32, 0.5f)};
  std::vector<anneal::ExecutionContext> contexts;
  for (int i = 0; i < 2; ++i) {
    contexts.emplace_back(engine).set_input("image", anneal::view(images[i], {1, 1, 32, 32}));
    auto inputs_read = contexts[i].enqueue(streams[i]);  // returns at once
    inputs_read.wait();                                  // images[i] may be written again
  }
  for (auto& context : contexts) context.wait();  // throws the error of the run
  for (float score : contexts[1].output("scores").span<float>()) std::cout << score << "\n";
}
