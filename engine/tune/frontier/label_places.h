// Places of labels in a picture: no label covers another one or a dot.
#pragma once
#include <vector>

#include "anneal/engine/tune/frontier/svg.h"

namespace anneal {

struct PictureBox {
  double left = 0, top = 0, right = 0, bottom = 0;
};

class LabelPlaces {
 public:
  explicit LabelPlaces(const PictureBox& bounds) : bounds_(bounds) {}
  void keep_free(const PictureBox& box) { taken_.push_back(box); }
  void keep_clear(const SvgLine& line) { lines_.push_back(line); }  // if that can be

  struct Place {
    PictureBox box;
    SvgLine leader;           // from the dot to the box
    bool has_leader = false;  // it is too far away to be taken for the dot's without one
    bool is_free = false;     // it covers nothing, and is within the bounds
  };
  // The place of a label of that size for the dot at (x, y) with that radius, at most `reach` away
  // from it. A free place is used if there is one.
  Place place(double x, double y, double radius, double width, double height, double reach);

 private:
  PictureBox bounds_;
  std::vector<PictureBox> taken_;
  std::vector<SvgLine> lines_;
};

}  // namespace anneal
