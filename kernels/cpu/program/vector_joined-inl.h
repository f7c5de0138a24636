// Common sequences of a vector program's steps as one function each. No include guard: included
// once per target, after vector_steps-inl.h.

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

#define ANNEAL_NEXT_BEHIND(steps) return call[steps].run(call + (steps), group, ANNEAL_EACH_A)

// Elements, and a vector of each column added to them.
template <class Storage, int kColumns>
void load_added(const Call* call, Group& group, ANNEAL_A) {
  const Places<const typename Storage::Element, kColumns> from(call[0].port, group);
  const Places<const float, kColumns> offset(call[1].port, group);
#define ANNEAL_STEP(i, a) a = hn::Add(Storage::load(from(i)), AsF32::load(offset(i)))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT_BEHIND(2);
}

HWY_INLINE V scaled_added(V v, V scale, V offset) { return hn::Add(hn::Mul(v, scale), offset); }

// As above, for elements that are multiplied first.
template <class Storage, int kColumns>
void load_scaled_added(const Call* call, Group& group, ANNEAL_A) {
  const Places<const typename Storage::Element, kColumns> from(call[0].port, group);
  const Places<const float, kColumns> scale(call[1].port, group), offset(call[2].port, group);
#define ANNEAL_STEP(i, a) \
  a = scaled_added(Storage::load(from(i)), AsF32::load(scale(i)), AsF32::load(offset(i)))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT_BEHIND(3);
}

// A += elements.
template <class Storage, int kColumns>
void add_loaded(const Call* call, Group& group, ANNEAL_A) {
  const Places<const typename Storage::Element, kColumns> from(call[0].port, group);
#define ANNEAL_STEP(i, a) a = hn::Add(a, Storage::load(from(i)))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT_BEHIND(2);
}

template <class F, bool kHasNumber>
HWY_INLINE V gated(V v, V number) {
  return hn::Mul(v, F::apply(kHasNumber ? hn::Mul(v, number) : v));
}

// A *= F(A), of F(A * number) if there is one: kSteps of them.
template <class F, int kSteps, bool kHasNumber>
void times_function(const Call* call, Group& group, ANNEAL_A) {
  const V number = hn::Set(D(), call[1].constant);
#define ANNEAL_STEP(i, a) a = gated<F, kHasNumber>(a, number)
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
  ANNEAL_NEXT_BEHIND(kSteps);
}

template <int kLimits>
HWY_INLINE V limited(V v, V low, V high) {
  v = max_number(D(), v, low);
  return kLimits == 2 ? min_number(D(), v, high) : v;
}

// The last steps: no less than a number and, of two limits, no more than another.
template <class Storage, int kColumns, int kLimits>
void store_limited(const Call* call, Group& group, ANNEAL_A) {
  const Places<typename Storage::Element, kColumns> to(call[kLimits].port, group);
  const V low = hn::Set(D(), call[0].constant);
  const V high = hn::Set(D(), call[kLimits - 1].constant);
#define ANNEAL_STEP(i, a) Storage::store(limited<kLimits>(a, low, high), to(i))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
}

// The last steps of a value that is multiplied and quantized.
template <class T, int kColumns>
void quantize_scaled(const Call* call, Group& group, ANNEAL_A) {
  const Places<T, kColumns> to(call[1].port, group);
  const V scale = hn::Set(D(), call[0].constant);
  const V low = hn::Set(D(), call[1].constant), high = hn::Set(D(), call[1].high);
  const auto zero = hn::Set(hn::RebindToSigned<D>(), call[1].zero);
#define ANNEAL_STEP(i, a) quantize(D(), hn::Mul(a, scale), low, high, zero, to(i))
  ANNEAL_FOR_EACH_A(ANNEAL_STEP);
#undef ANNEAL_STEP
}

// The function of the first of several steps that are one, for groups of kColumns columns; null:
// they are not. calls: those of `steps`, with their ports, and of the last step behind them.
template <int kColumns>
class Joiner {
 public:
  Joiner(std::span<const VectorStep> steps, const Call* calls) : steps_(steps), calls_(calls) {}

  Step load() const {
    const VectorStep& first = steps_[0];
    if (first.op != VectorOp::kLoad || !is_dense(0)) return nullptr;
    if (first.to_b) {
      const bool adds = first.storage == DataType::kBF16 && is(1, VectorOp::kAdd, kOther);
      return adds ? add_loaded<AsBf16, kColumns> : nullptr;
    }
    if (first.storage == DataType::kF32) return load_affine<AsF32>();
    return first.storage == DataType::kI32 ? load_affine<FromI32>() : nullptr;
  }
  // The factor of a value is computed from the value.
  Step gate() const {
    if (HWY_TARGET != HWY_AVX3) return nullptr;  // functions are exact, and take long
    if (steps_[0].op != VectorOp::kCopy) return nullptr;
    if (is(1, VectorOp::kApproximateSigmoid, kOther) && is(2, VectorOp::kMul, kOther))
      return times_function<ApproximateSigmoid, 3, false>;
    const bool has_number = is(1, VectorOp::kMul, kConstant, true);
    const size_t at = has_number ? 2 : 1;
    if (!is(at + 1, VectorOp::kMul, kOther)) return nullptr;
    if (is(at, VectorOp::kApproximateSigmoid, kOther, true))
      return gate_of<ApproximateSigmoid>(has_number);
    if (is(at, VectorOp::kApproximateOnePlusErf, kOther, true))
      return gate_of<ApproximateOnePlusErf>(has_number);
    return nullptr;
  }
  template <class Storage>
  Step store() const {
    if (!is(0, VectorOp::kMax, kConstant)) return nullptr;
    if (steps_.size() == 1) return store_limited<Storage, kColumns, 1>;
    const bool has_both = steps_.size() == 2 && is(1, VectorOp::kMin, kConstant);
    return has_both ? store_limited<Storage, kColumns, 2> : nullptr;
  }
  Step quantize(DataType dtype) const {
    if (steps_.size() != 1 || !is(0, VectorOp::kMul, kConstant)) return nullptr;
    return dtype == DataType::kU8 ? quantize_scaled<uint8_t, kColumns>
                                  : quantize_scaled<int8_t, kColumns>;
  }

 private:
  using enum VectorOperand;
  bool is_dense(size_t i) const { return calls_[i].port.column_stride == 1; }
  // Whether step i is this one, of A or B.
  bool is(size_t i, VectorOp op, VectorOperand operand, bool to_b = false) const {
    if (i >= steps_.size()) return false;
    const VectorStep& step = steps_[i];
    if (step.op != op || step.to_b != to_b || step.operand != operand) return false;
    if (operand == kPort) return is_dense(i);
    return operand != kConstant || !std::isnan(step.constant);
  }
  template <class F>
  static Step gate_of(bool has_number) {
    return has_number ? times_function<F, 4, true> : times_function<F, 3, false>;
  }
  template <class Storage>
  Step load_affine() const {
    if (is(1, VectorOp::kAdd, kPort)) return load_added<Storage, kColumns>;
    const bool is_scaled = is(1, VectorOp::kMul, kPort) && is(2, VectorOp::kAdd, kPort);
    return is_scaled ? load_scaled_added<Storage, kColumns> : nullptr;
  }

  std::span<const VectorStep> steps_;
  const Call* calls_;
};

}  // namespace
}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
