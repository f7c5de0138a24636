// Random expressions, each carried along with its values at many points, and files made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/size/real.h"

namespace anneal {
namespace {

constexpr int kPoints = 24;
constexpr int kSymbols = 4;
constexpr int64_t kSmall = int64_t{1} << 30;  // values beyond it are not followed

using Point = std::vector<std::optional<int64_t>>;
using Value = std::optional<int64_t>;  // nullopt: not defined there

struct TrackedSize {
  Size size;
  std::vector<Value> values;  // by point
};

int64_t floor_of(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

struct Operation {
  const char* name;
  Size (*symbolic)(SizeTable&, Size, Size);
  Value (*numeric)(int64_t, int64_t);
};

template <Size (SizeTable::*operation)(Size, Size)>
Size call(SizeTable& table, Size a, Size b) {
  return (table.*operation)(a, b);
}

// f32 or f64 arithmetic on a table.
template <RealType type>
struct Reals {
  SizeTable& table;
  Size of(Size integer) { return RealSizes(table).operation(RealOp::kConvert, type, integer); }
  Size of(double value) { return RealSizes(table).constant(value, type); }
  Size operator()(RealOp op, Size a, Size b = 0) {
    return RealSizes(table).operation(op, type, a, b);
  }
};

// As a cast to i64, of what is far from overflow.
Value whole(double value) {
  return std::abs(value) < 0x1p62 ? Value(static_cast<int64_t>(value)) : Value();
}
const Operation kOperations[] = {
    {"add", call<&SizeTable::add>, [](int64_t a, int64_t b) -> Value { return a + b; }},
    {"sub", call<&SizeTable::sub>, [](int64_t a, int64_t b) -> Value { return a - b; }},
    {"mul", call<&SizeTable::mul>, [](int64_t a, int64_t b) -> Value { return a * b; }},
    {"floor_div", call<&SizeTable::floor_div>,
     [](int64_t a, int64_t b) -> Value { return b == 0 ? Value() : floor_of(a, b); }},
    {"ceil_div", call<&SizeTable::ceil_div>,
     [](int64_t a, int64_t b) -> Value { return b == 0 ? Value() : -floor_of(-a, b); }},
    {"min", call<&SizeTable::min>, [](int64_t a, int64_t b) -> Value { return std::min(a, b); }},
    {"max", call<&SizeTable::max>, [](int64_t a, int64_t b) -> Value { return std::max(a, b); }},
    {"broadcast", call<&SizeTable::broadcast>,
     [](int64_t a, int64_t b) -> Value {
       return a == b || b == 1 ? Value(a) : a == 1 ? Value(b) : Value();
     }},
    {"floor_f32",
     [](SizeTable& table, Size a, Size b) {
       Reals<RealType::kF32> f{table};
       return RealSizes(table).truncate(f(RealOp::kFloor, f(RealOp::kDiv, f.of(a), f.of(b))));
     },
     [](int64_t a, int64_t b) -> Value {
       return b == 0 ? Value() : whole(std::floor(static_cast<float>(a) / static_cast<float>(b)));
     }},
    {"frames_f32",  // ceil(a / b + 1), as padding to whole frames
     [](SizeTable& table, Size a, Size b) {
       Reals<RealType::kF32> f{table};
       const Size frames = f(RealOp::kAdd, f(RealOp::kDiv, f.of(a), f.of(b)), 1);
       return RealSizes(table).truncate(f(RealOp::kCeil, frames));
     },
     [](int64_t a, int64_t b) -> Value {
       return b == 0 ? Value()
                     : whole(std::ceil(static_cast<float>(a) / static_cast<float>(b) + 1.0F));
     }},
    {"scaled_f32",
     [](SizeTable& table, Size a, Size b) {
       Reals<RealType::kF32> f{table};
       const Size scaled = f(RealOp::kMul, f.of(double{0.3F}), f.of(a));
       return RealSizes(table).truncate(
           f(RealOp::kSub, scaled, f(RealOp::kMul, f.of(b), f.of(0.5))));
     },
     [](int64_t a, int64_t b) -> Value {
       return whole(0.3F * static_cast<float>(a) - static_cast<float>(b) * 0.5F);
     }},
    {"rounded_f64",
     [](SizeTable& table, Size a, Size b) {
       Reals<RealType::kF64> f{table};
       const Size product = f(RealOp::kMul, f.of(a), f.of(0.75));
       return RealSizes(table).truncate(f(RealOp::kRoundEven, f(RealOp::kMax, product, f.of(b))));
     },
     [](int64_t a, int64_t b) -> Value {
       return whole(
           std::nearbyint(std::max(static_cast<double>(a) * 0.75, static_cast<double>(b))));
     }},
    {"diagonal_f32",
     [](SizeTable& table, Size a, Size b) {
       Reals<RealType::kF32> f{table};
       const Size square = f(RealOp::kMul, f.of(a), f.of(a));
       const Size root = f(RealOp::kSqrt, f(RealOp::kAdd, square, f(RealOp::kAbs, f.of(b))));
       return RealSizes(table).truncate(f(RealOp::kNeg, f(RealOp::kMin, root, f.of(100.25))));
     },
     [](int64_t a, int64_t b) -> Value {
       const auto side = static_cast<float>(a);
       const float square = side * side;
       return whole(-std::min(std::sqrt(square + std::abs(static_cast<float>(b))), 100.25F));
     }},
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    points_.assign(kPoints, Point(kSymbols));
    for (int i = 0; i < kSymbols; ++i) {
      const Size symbol = table.symbol(std::string(1, static_cast<char>('A' + i)));
      const int64_t low = std::vector<int64_t>{0, 1, -7, 1}[static_cast<size_t>(i)];
      const int64_t high = std::vector<int64_t>{40, 9, 7, 300}[static_cast<size_t>(i)];
      table.set_bounds(symbol, {low, high, high});
      TrackedSize tracked{symbol, {}};
      for (Point& point : points_) {
        point[static_cast<size_t>(i)] = low + static_cast<int64_t>(below(high - low + 1));
        tracked.values.push_back(point[static_cast<size_t>(i)]);
      }
      pool.push_back(std::move(tracked));
    }
    for (int64_t number : {-3, -1, 0, 1, 2, 2, 3, 4, 6, 7, 32})
      pool.push_back({number, std::vector<Value>(kPoints, number)});
  }

  void step() {
    const Operation& operation = kOperations[below(std::size(kOperations))];
    const TrackedSize a = pool[below(pool.size())], b = pool[below(pool.size())];
    const auto story = [&] {
      return std::string(operation.name) + "(" + table.text(a.size) + ", " + table.text(b.size) +
             ")";
    };
    TrackedSize result;
    try {
      result.size = operation.symbolic(table, a.size, b.size);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidModel) << story();
      return;
    }
    const std::string text = table.text(result.size);
    EXPECT_EQ(table.parse(text), result.size) << story() << " = " << text;
    const Bounds range = table.range(result.size);
    for (size_t i = 0; i < points_.size(); ++i) {
      Value value;
      if (a.values[i] && b.values[i]) value = operation.numeric(*a.values[i], *b.values[i]);
      if (value && (*value > kSmall || *value < -kSmall)) value.reset();
      result.values.push_back(value);
      if (!value) continue;
      ASSERT_EQ(table.evaluate(result.size, points_[i]), *value) << story() << " = " << text;
      ASSERT_LE(range.min, *value) << text;
      ASSERT_GE(range.max, *value) << text;
    }
    if (text.size() < 60) pool.push_back(std::move(result));
  }

  SizeTable table;
  std::vector<TrackedSize> pool;

 private:
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }

  std::mt19937_64 random_;
  std::vector<Point> points_;
};

TEST(SizeProperty, OperationsCommuteWithEvaluation) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    World world(seed);
    for (int step = 0; step < 150 && !testing::Test::HasFailure(); ++step) world.step();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

std::vector<std::byte> saved(const SizeTable& table) {
  ByteWriter writer;
  table.save(writer);
  return writer.take();
}

SizeTable loaded(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "sizes");
  SizeTable table = SizeTable::load(reader);
  reader.expect_end();
  return table;
}

TEST(SizeFile, IdsTextsAndBoundsStayTheSame) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    World world(seed);
    for (int step = 0; step < 60; ++step) world.step();
    world.table.set_bounds(world.table.symbol("A"), {1, 2, 3});  // narrower than when decided
    const Size odd = world.table.parse("2*A + 1");
    world.table.set_representatives({{odd.expression(), 5}});
    const auto bytes = saved(world.table);
    SizeTable table = loaded(bytes);
    EXPECT_EQ(saved(table), bytes);
    EXPECT_EQ(table.representative(odd), Size(5));
    EXPECT_EQ(table.expression_count(), world.table.expression_count());
    EXPECT_EQ(table.symbols()[0].bounds, (Bounds{1, 2, 3}));
    for (const TrackedSize& tracked : world.pool)
      ASSERT_EQ(table.text(tracked.size), world.table.text(tracked.size));
    EXPECT_EQ(table.parse("A + 1"), world.table.parse("A + 1"));
  }
}

TEST(SizeRepresentatives, ReplaceParts) {
  SizeTable table;
  const auto parsed = [&](std::string_view text) { return table.parse(text); };
  table.set_representatives({{parsed("max(n - m, 0)").expression(), 2},
                             {parsed("4*((s + 1)//2)").expression(), parsed("2*s")},
                             {parsed("a + b").expression(), parsed("c")}});
  for (const auto& [size, expected] :
       std::map<std::string_view, std::string_view>{{"max(n - m, 0) + m", "m + 2"},
                                                    {"k*max(n - m, 0)", "2*k"},
                                                    {"min(max(n - m, 0), q)//3", "min(q, 2)//3"},
                                                    {"8*((s + 1)//2) + 3", "4*s + 3"},
                                                    {"2*((s + 1)//2)", "2*((s + 1)//2)"},
                                                    {"2*a + 2*b - n", "2*c - n"},
                                                    {"a + 2*b", "a + 2*b"},
                                                    {"n", "n"}})
    EXPECT_EQ(table.text(table.represented(parsed(size))), table.text(parsed(expected))) << size;
}

SizeTable sample() {
  SizeTable table;
  table.set_bounds(table.symbol("N"), {1, 4, 8});
  table.parse("(H + 1)//2*N + N*N - 3*H");
  table.parse("min(N, H, W, 4)");
  table.parse("max(N//W, (H + 3)//N)");
  table.parse("(N*H + 1)//(W + 7)");
  return table;
}

// Uses everything in the table: nothing of it may crash, whatever it says.
void exercise(SizeTable& table) {
  const std::vector<std::optional<int64_t>> values(table.symbols().size(), 5);
  const uint32_t count = table.expression_count();
  for (uint32_t id = 0; id < count; ++id) {
    const Size size = Size::expression(id);
    table.text(size);
    table.range(size);
    table.symbols_in(size);
    try {
      table.evaluate(size, values);
      table.floor_div(table.add(size, 1), table.min(size, 7));
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
}

TEST(SizeFile, EveryTruncationIsRefused) {
  const auto bytes = saved(sample());
  SizeTable whole = loaded(bytes);
  exercise(whole);
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      loaded(std::span(bytes).first(size));
      ADD_FAILURE() << size << " bytes were enough";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan) << error.what();
    }
  }
}

TEST(SizeFile, EveryFlippedByteIsATableOrRefused) {
  auto bytes = saved(sample());
  int refused = 0, accepted = 0;
  for (std::byte& byte : bytes) {
    const std::byte original = byte;
    for (int value : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff, 0x03, 0x0f}) {
      byte = original ^ static_cast<std::byte>(value);
      try {
        SizeTable table = loaded(bytes);
        ++accepted;
        exercise(table);
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan) << error.what();
      }
    }
    byte = original;
  }
  EXPECT_GT(refused, accepted / 4);
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace anneal
