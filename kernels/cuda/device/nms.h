// NonMaxSuppression of one class of one image by a block: the best box that is left is kept, and
// those that overlap it leave.
#pragma once

namespace nms {

struct Box {
  f32 y1, x1, y2, x2;  // y1 <= y2, x1 <= x2
  f32 area;
};

// Of two equal numbers, or where one is NaN, the first, as std::min() and std::max() of the CPU.
__device__ inline f32 smaller(f32 a, f32 b) { return b < a ? b : a; }
__device__ inline f32 larger(f32 a, f32 b) { return a < b ? b : a; }

// by_centre: the numbers are centre_x, centre_y, width and height, else two corners, y first.
__device__ inline Box box_of(f32 a, f32 b, f32 c, f32 d, bool by_centre) {
  Box box;
  if (by_centre)
    box = {b - d / 2, a - c / 2, b + d / 2, a + c / 2, 0};
  else
    box = {smaller(a, c), smaller(b, d), larger(a, c), larger(b, d), 0};
  box.area = (box.y2 - box.y1) * (box.x2 - box.x1);
  return box;
}

__device__ inline bool overlap(const Box& a, const Box& b, f32 threshold) {
  const f32 width = smaller(a.x2, b.x2) - larger(a.x1, b.x1);
  const f32 height = smaller(a.y2, b.y2) - larger(a.y1, b.y1);
  if (!(width > 0 && height > 0)) return false;
  const f32 both = width * height, either = a.area + b.area - both;
  return a.area > 0 && b.area > 0 && either > 0 && both / either > threshold;
}

// What orders boxes: the better score, and of equal ones the lower index. 0 is no box.
__device__ inline u64 key_of(f32 score, i32 index) {
  return u64(top_k::key_of(score)) << 32 | u64(~u32(index));
}

// Keeps at most `most` boxes and returns their number. order[i] becomes 1 for the box that is kept
// first, 2 for the next, and -1 for boxes that are not kept or, if they are too many, 0. Each of
// 256 threads owns every 256th box, so they meet only where they look for the best one.
template <class Takes, class Score, class BoxAt>
__device__ inline i64 keep(i32 boxes, i64 most, f32 threshold, SharedArray<u64> partial,
                           Out<i32> order, Takes takes, Score score, BoxAt box) {
  for (i32 i = i32(threadIdx.x); i < boxes; i += 256) order[i] = takes(score(i)) ? 0 : -1;
  i64 kept = 0;
  for (; kept < most; ++kept) {
    u64 best = 0;
    for (i32 i = i32(threadIdx.x); i < boxes; i += 256)
      if (order[i] == 0) best = top_k::LargerNumber()(best, key_of(score(i), i));
    best = over_row<256>(best, partial, top_k::LargerNumber());
    if (best == 0) break;
    const i32 index = i32(~u32(best));
    const Box by = box(index);
    for (i32 i = i32(threadIdx.x); i < boxes; i += 256) {
      if (i == index)
        order[i] = i32(kept + 1);
      else if (order[i] == 0 && overlap(by, box(i), threshold))
        order[i] = -1;
    }
  }
  return kept;
}

}  // namespace nms
