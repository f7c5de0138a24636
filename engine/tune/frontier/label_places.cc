#include "anneal/engine/tune/frontier/label_places.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace anneal {
namespace {

constexpr double kGap = 5;  // between dot and label
constexpr double kNear = 12;
constexpr int kDirections = 16;
// Penalties of a place, per pixel or square pixel.
constexpr double kOutside = 1000, kCovers = 4, kCoversFixed = 200, kCrosses = 0.8, kLeaderOver = 3,
                 kFar = 0.4;

double overlap(const PictureBox& a, const PictureBox& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  return width > 0 && height > 0 ? width * height : 0;
}

// Of the line, by clipping it at each side.
double length_inside(const SvgLine& line, const PictureBox& box) {
  const double dx = line.x2 - line.x1, dy = line.y2 - line.y1;
  double from = 0, to = 1;
  const auto clip = [&](double along, double room) {
    if (along == 0) {
      if (room < 0) to = -1;
    } else if (along > 0) {
      to = std::min(to, room / along);
    } else {
      from = std::max(from, room / along);
    }
  };
  clip(-dx, line.x1 - box.left);
  clip(dx, box.right - line.x1);
  clip(-dy, line.y1 - box.top);
  clip(dy, box.bottom - line.y1);
  return to > from ? (to - from) * std::hypot(dx, dy) : 0;
}

}  // namespace

LabelPlaces::Place LabelPlaces::place(double x, double y, double radius, double width,
                                      double height, double reach) {
  Place best;
  double least = std::numeric_limits<double>::infinity();
  for (double distance = 0; distance <= reach; distance = distance * 1.3 + 6)
    for (int k = 0; k < kDirections; ++k) {
      const double angle = 2 * std::numbers::pi * k / kDirections;
      const double across = std::cos(angle), down = std::sin(angle);
      const double away = radius + kGap + distance;
      const double middle_x = x + across * (away + width / 2);
      const double middle_y = y + down * (away + height / 2);
      Place place;
      place.box = {middle_x - width / 2, middle_y - height / 2, middle_x + width / 2,
                   middle_y + height / 2};
      const double end_x = std::clamp(x, place.box.left, place.box.right);
      const double end_y = std::clamp(y, place.box.top, place.box.bottom);
      const double length = std::hypot(end_x - x, end_y - y);
      if (length <= radius) continue;
      place.leader = {x + (end_x - x) * radius / length, y + (end_y - y) * radius / length, end_x,
                      end_y};
      place.has_leader = distance > kNear;
      const double inside = overlap(place.box, bounds_);
      const bool is_inside = inside > width * height * 0.999;
      // To the right is where names are looked for; above and below are next best.
      double cost = kFar * distance + (across > 0.9 ? 0 : across < -0.5 ? 4 : 2);
      if (!is_inside) cost += kOutside;
      place.is_free = is_inside;
      for (const PictureBox& box : taken_) {
        if (const double covered = overlap(place.box, box); covered > 0) {
          cost += kCoversFixed + kCovers * covered;
          place.is_free = false;
        }
        if (place.has_leader) cost += kLeaderOver * length_inside(place.leader, box);
      }
      for (const SvgLine& line : lines_) cost += kCrosses * length_inside(line, place.box);
      if (cost < least) {
        least = cost;
        best = place;
      }
    }
  if (best.is_free) taken_.push_back(best.box);
  return best;
}

}  // namespace anneal
