// The first k elements of a line in an order: the largest first, or the smallest, and of equal ones
// the first in the line. A NaN counts as larger than all numbers.
//
// Lines that fit in shared memory are sorted there. Of longer ones, a radix selection finds the
// last of the next kRoom elements in the order, which are then collected and sorted, and so on
// until there are k.
#pragma once

namespace top_k {

// A key for each element, by which a smaller element has a smaller key, and equal elements have
// equal ones.
__device__ inline u32 key_of(f32 x) {
  const u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
  return x != x ? ~u32(0) : (bits >> 31) != 0 ? ~bits : bits | u32(1) << 31;
}
__device__ inline u64 key_of(f64 x) {
  const u64 bits = __builtin_bit_cast(u64, x == 0.0 ? 0.0 : x);
  return x != x ? ~u64(0) : (bits >> 63) != 0 ? ~bits : bits | u64(1) << 63;
}
__device__ inline u32 key_of(i32 x) { return u32(x) ^ u32(1) << 31; }
__device__ inline u64 key_of(i64 x) { return u64(x) ^ u64(1) << 63; }
__device__ inline u32 key_of(u32 x) { return x; }
__device__ inline u64 key_of(u64 x) { return x; }

// Where an element is in the order: by its key, then by its index.
template <class Key, class I>
struct Place {
  Key key;
  I index;
  __device__ bool comes_before(const Place& other) const {
    return key < other.key || (key == other.key && index < other.index);
  }
};

// Shared memory of the threads of a line.
template <class Key, class I>
struct Room {
  SharedArray<Key> keys;
  SharedArray<I> indices;
  SharedArray<u32> counts;  // 256 and two more, for selections
  SharedArray<u32> partial;
  __device__ Place<Key, I> at(i32 i) const {
    const Key key = keys[i];
    const I index = indices[i];
    return {key, index};
  }
  __device__ void put(i32 i, const Place<Key, I>& place) const {
    keys[i] = place.key;
    indices[i] = place.index;
  }
};

template <int threads>
__device__ inline void meet() {
  if constexpr (threads == 32)
    __syncwarp();
  else
    __syncthreads();
}

// Sorts the first `count` places, at most kRoom.
template <int threads, int kRoom, class Key, class I>
__device__ void sort(const Room<Key, I>& room, i32 count) {
  const i32 thread = i32(threadIdx.x) % threads;
  i32 size = 2;
  while (size < count) size *= 2;
  for (i32 i = count + thread; i < size && i < kRoom; i += threads)
    room.put(i, {~Key(0), op::most<I>()});
  for (i32 run = 2; run <= size; run *= 2)
    for (i32 apart = run / 2; apart > 0; apart /= 2) {
      meet<threads>();
      for (i32 pair = thread; pair < size / 2; pair += threads) {
        const i32 low = pair / apart * (2 * apart) + pair % apart, high = low + apart;
        const Place<Key, I> a = room.at(low), b = room.at(high);
        const bool ascends = (low & run) == 0;
        if (ascends ? b.comes_before(a) : a.comes_before(b)) {
          room.put(low, b);
          room.put(high, a);
        }
      }
    }
  meet<threads>();
}

// One digit of a selection: `digit`(i) of each element that is still in question, -1 of others.
// Finds the digit of the wanted-th element, takes the number of elements with smaller digits off
// `wanted`, and returns the digit and how many elements have it.
struct Digit {
  u32 value, count;
};
template <class Key, class I, class Of>
__device__ Digit select_digit(const Room<Key, I>& room, I length, u32& wanted, Of digit) {
  const i32 thread = i32(threadIdx.x);  // one of 256
  __syncthreads();
  room.counts[thread] = 0;
  __syncthreads();
  for (I i = thread; i < length; i += 256) {
    const i32 of = digit(i);
    if (of >= 0) atomic_add(room.counts, of, u32(1));
  }
  __syncthreads();
  const u32 own = room.counts[thread];
  const u32 counts[1] = {own};
  u32 earlier[1];
  scan::before_threads<256>(counts, u32(0), room.partial, Add(), earlier);
  const u32 before = earlier[0];
  if (before < wanted && wanted <= before + own) {
    room.counts[256] = u32(thread);
    room.counts[257] = before;
  }
  __syncthreads();
  const u32 value = room.counts[256], taken = room.counts[257];
  const u32 count = room.counts[i32(value)];
  wanted -= taken;
  return {value, count};
}

// The place of the wanted-th element in the order among those that `takes` (a place). place(i) is
// that of element i. Of elements with equal keys, the one with the lower index comes first.
template <class Key, class I, class PlaceOf, class Takes>
__device__ Place<Key, I> select(const Room<Key, I>& room, I length, u32 wanted, PlaceOf place,
                                Takes takes) {
  Key key = 0, known = 0;  // the digits found, and a mask of their bits
  for (int shift = 8 * (sizeof(Key) - 1); shift >= 0; shift -= 8) {
    const Digit digit = select_digit(room, length, wanted, [&](I i) {
      const Place<Key, I> own = place(i);
      return takes(own) && (own.key & known) == key ? i32(own.key >> shift & 255) : -1;
    });
    key |= Key(digit.value) << shift;
    known |= Key(255) << shift;
    if (digit.count == wanted) return {Key(key | Key(~known)), op::most<I>()};
  }
  I index = 0, known_index = 0;
  int shift = 0;
  while ((length - 1) >> shift > 255) shift += 8;
  for (; shift >= 0; shift -= 8) {
    const Digit digit = select_digit(room, length, wanted, [&](I i) {
      const Place<Key, I> own = place(i);
      const bool is_in = own.key == key && takes(own) && (i & known_index) == index;
      return is_in ? i32(i >> shift & 255) : -1;
    });
    index |= I(digit.value) << shift;
    known_index |= I(255) << shift;
  }
  return {key, index};
}

// write(n, i): element i of the line is the n-th in the order. key(i) is small for elements that
// come first. Lines of a warp are no longer than kRoom.
template <int threads, int kRoom, class Key, class I, class KeyOf, class Write>
__device__ void first_of(const Room<Key, I>& room, I length, I k, KeyOf key, Write write) {
  const i32 thread = i32(threadIdx.x) % threads;
  const auto place = [&](I i) { return Place<Key, I>{key(i), i}; };
  Place<Key, I> done{0, -1};  // the last one that was written
  for (I begin = 0; begin < k; begin += kRoom) {
    const auto takes = [&](const Place<Key, I>& own) {
      return begin == 0 || done.comes_before(own);
    };
    const i32 wanted = i32(k - begin < kRoom ? k - begin : kRoom);
    i32 found = wanted;
    meet<threads>();  // what was in the room has been read
    if (length <= kRoom) {
      for (I i = thread; i < length; i += threads) room.put(i32(i), place(i));
      found = i32(length);
    } else if constexpr (threads == 256) {
      const Place<Key, I> last = select(room, length, u32(wanted), place, takes);
      __syncthreads();
      if (thread == 0) room.counts[0] = 0;
      __syncthreads();
      for (I i = thread; i < length; i += threads) {
        const Place<Key, I> own = place(i);
        if (takes(own) && !last.comes_before(own))
          room.put(i32(atomic_add(room.counts, 0, u32(1))), own);
      }
    }
    meet<threads>();
    sort<threads, kRoom>(room, found);
    for (i32 n = thread; n < wanted; n += threads) {
      const I index = room.indices[n];
      write(begin + n, index);
    }
    done = room.at(wanted - 1);
  }
}

// The numbers of a softmax over a line: its largest element, NaN aside, and the sum of the
// exponentials of all elements less that.
struct LargerNumber {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};
template <int threads, class T, class I, class Element>
__device__ void softmax_of(I length, SharedArray<T> partial, Element element, T& most, T& sum) {
  const i32 thread = i32(threadIdx.x) % threads;
  most = -T(op::inf_f32());
  for (I i = thread; i < length; i += threads) most = LargerNumber()(most, T(element(i)));
  most = over_row<threads>(most, partial, LargerNumber());
  sum = 0;
  for (I i = thread; i < length; i += threads) sum += op::exp(T(element(i)) - most);
  sum = over_row<threads>(sum, partial, Add());
}

}  // namespace top_k
