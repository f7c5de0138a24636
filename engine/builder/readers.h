// The devices that read a value, directly or through views. They decide on which device views of
// CPU memory, such as inputs, are taken.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/builder/layout.h"
#include "anneal/graph/graph.h"

namespace anneal {

class Readers {
 public:
  // output_places: where the graph's outputs are wanted; empty: on the last place
  Readers(const Graph& graph, std::span<const Place> places, const Layouts& layouts,
          std::span<const size_t> output_places = {});

  // Whether a layer on the place, or on the last one the model's caller, reads some of the value.
  bool are_on(size_t place, ValueId value) const { return elements(place, value) > 0; }
  // Whether the whole value should be on the place, and views be taken there. A constant of up to
  // 64 MiB should wherever it is read, since it is copied once, at load. Of another value the
  // layers there must read a quarter or more, at the opt sizes: else the CPU cuts out the parts
  // that are read, and only these are copied. This also holds for parts that need no cutting:
  // several parts would be several copies.
  bool want_all_on(size_t place, ValueId value) const;
  // Where views of the layer's first input are taken: on `home`, where that lies; of one that lies
  // on the CPU, wherever it is read. has_copy: whether a place has one already.
  struct Views {
    std::vector<size_t> places;
    std::string why;
  };
  Views views(const Layer& layer, size_t home, const std::function<bool(size_t)>& has_copy) const;

 private:
  double elements(size_t place, ValueId value) const {
    const size_t index = static_cast<size_t>(value) * places_.size() + place;
    return index < elements_.size() ? elements_[index] : 0;
  }
  void add(size_t place, ValueId value, double elements);

  const Graph& graph_;
  std::span<const Place> places_;
  // By value and place: how many are read, at most. Elements that two views share count twice.
  std::vector<double> elements_;
};

}  // namespace anneal
