// name_activations: what computes a known activation function takes its shortest spelling.
//
//   y = Pointwise(x) program=mul(mul($0,add(tanh(mul(c,add(mul(mul($0,$0),$0)...
//     =>   y = Pointwise(x) program=mul($0,sigmoid(mul($0,add(mul(mul($0,$0),d),e))))
//
// In programs of Pointwise layers and in epilogues: each register that depends on one other
// register alone is asked, at many points, whether it is GELU (by erf or tanh), SiLU, hard-swish,
// hard-sigmoid, Mish, softplus, tanh or sigmoid of it. The new spelling is taken if it costs less;
// the name is recorded in any case. Only for f32. Changes numerics by a few ulp of the function's
// largest value nearby. Runs when elementwise layers are joined, so that each function is in one
// program.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "anneal/optimizer/analysis/decisions.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/programs/rewrite_program.h"

namespace anneal {
namespace {

constexpr size_t kMaxProgram = 128;
constexpr double kTolerance = 3e-6;  // of |x|
constexpr double kAtZero = 5e-7;
constexpr float kLeastNumber = 1e-3F;
const double kTanhScale = 2 * std::sqrt(2 / std::numbers::pi);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double clipped(double x, double low, double high) { return std::min(std::max(x, low), high); }

// Spells functions of a register.
struct Speller {
  ProgramBuilder& builder;
  Reg number(double value) const { return builder.constant(static_cast<float>(value)); }
  Reg apply(Opcode opcode, Reg a) const { return builder.apply(opcode, a); }
  Reg add(Reg a, double b) const { return builder.apply(Opcode::kAdd, a, number(b)); }
  Reg mul(Reg a, double b) const { return builder.apply(Opcode::kMul, a, number(b)); }
  Reg mul(Reg a, Reg b) const { return builder.apply(Opcode::kMul, a, b); }
  Reg clip(Reg a, double low, double high) const {
    return builder.apply(Opcode::kMin, builder.apply(Opcode::kMax, a, number(low)), number(high));
  }
};

struct Activation {
  std::string_view name;
  double (*value)(double);
  Reg (*spell)(const Speller&, Reg);
  bool has_corners = false;  // is made of clamps itself
};

constexpr Activation kActivations[] = {
    {"sigmoid", sigmoid, [](const Speller& s, Reg x) { return s.apply(Opcode::kSigmoid, x); }},
    {"tanh", [](double x) { return std::tanh(x); },
     [](const Speller& s, Reg x) { return s.apply(Opcode::kTanh, x); }},
    {"SiLU", [](double x) { return x * sigmoid(x); },
     [](const Speller& s, Reg x) { return s.mul(x, s.apply(Opcode::kSigmoid, x)); }},
    {"GELU (sigmoid)", [](double x) { return x * sigmoid(1.702 * x); },
     [](const Speller& s, Reg x) { return s.mul(x, s.apply(Opcode::kSigmoid, s.mul(x, 1.702))); }},
    {"GELU (erf)", [](double x) { return 0.5 * x * (1 + std::erf(x * std::numbers::sqrt2 / 2)); },
     [](const Speller& s, Reg x) {
       const Reg erf = s.apply(Opcode::kErf, s.mul(x, std::numbers::sqrt2 / 2));
       return s.mul(s.mul(x, 0.5), s.add(erf, 1));
     }},
    {"GELU (tanh)", [](double x) { return x * sigmoid(kTanhScale * (x + 0.044715 * x * x * x)); },
     [](const Speller& s, Reg x) {
       const Reg factor = s.add(s.mul(s.mul(x, x), 0.044715 * kTanhScale), kTanhScale);
       return s.mul(x, s.apply(Opcode::kSigmoid, s.mul(x, factor)));
     }},
    {"hard-swish", [](double x) { return x * clipped(x + 3, 0, 6) / 6; },
     [](const Speller& s, Reg x) { return s.mul(s.mul(x, 1.0 / 6), s.clip(s.add(x, 3), 0, 6)); },
     true},
    {"hard-sigmoid", [](double x) { return clipped(x + 3, 0, 6) / 6; },
     [](const Speller& s, Reg x) { return s.mul(s.clip(s.add(x, 3), 0, 6), 1.0 / 6); }, true},
    {"hard-sigmoid", [](double x) { return clipped(0.2 * x + 0.5, 0, 1); },
     [](const Speller& s, Reg x) { return s.clip(s.add(s.mul(x, 0.2), 0.5), 0, 1); }, true},
    {"Mish", [](double x) { return x * std::tanh(softplus(x)); },
     // tanh(log(1 + e)) is (e*e + 2*e) / (e*e + 2*e + 2), and 1 long before x is 20.
     [](const Speller& s, Reg x) {
       const Reg e = s.apply(Opcode::kExp, s.builder.apply(Opcode::kMin, x, s.number(20)));
       const Reg n = s.mul(e, s.add(e, 2));
       return s.mul(x, s.builder.apply(Opcode::kDiv, n, s.add(n, 2)));
     }},
    {"softplus", softplus,
     [](const Speller& s, Reg x) {
       const Reg tail = s.apply(Opcode::kNeg, s.apply(Opcode::kAbs, x));
       const Reg log = s.apply(Opcode::kLog1p, s.apply(Opcode::kExp, tail));
       return s.builder.apply(Opcode::kAdd, s.builder.apply(Opcode::kMax, x, s.number(0)), log);
     }},
};

// Where functions are asked: dense where they bend, near 0, and far out, where what is clamped
// differs.
std::vector<float> points() {
  std::vector<float> all = {-40, -20, -1e-3F, 0, 1e-3F, 20, 40};
  for (const float far : {80.0F, 300.0F, 7e4F, 1e10F, 1e30F}) all.insert(all.end(), {far, -far});
  for (int i = -48; i <= 48; ++i) all.push_back(static_cast<float>(i) * 0.21F);
  return all;
}

int cost(Opcode opcode) {
  switch (opcode) {
    case Opcode::kDiv:
    case Opcode::kSqrt:
      return 4;
    case Opcode::kPow:
      return 16;
    default:
      if (operand_count(opcode) == 0) return 0;
      return opcode >= Opcode::kExp && opcode <= Opcode::kSigmoid ? 8 : 1;
  }
}

int cost(const Program& program) {
  int sum = 0;
  for (const Instruction& one : program.code()) sum += cost(one.opcode);
  return sum;
}

bool follows(const std::vector<float>& at, const std::vector<Scalar>& values,
             double (*wanted)(double)) {
  for (size_t i = 0; i < at.size(); ++i) {
    const double want = wanted(static_cast<double>(at[i]));
    const double got = static_cast<double>(values[i].as<float>());
    if (!(std::abs(want - got) <= kAtZero + kTolerance * std::abs(static_cast<double>(at[i]))))
      return false;
  }
  return true;
}

// A register that is an activation of another one.
struct ActivationMatch {
  size_t reg = 0, of = 0;
  const Activation* activation = nullptr;
};

class Finder {
 public:
  explicit Finder(const Program& program) : code_(program.code()), at_(points()) {}

  // Those of one register, in order.
  std::vector<ActivationMatch> matches_of(size_t source) const {
    // For each register that depends only on the source and constants: its values at the points.
    std::vector<std::vector<Scalar>> values(code_.size());
    std::vector<bool> varies(code_.size());
    std::vector<ActivationMatch> found;
    for (size_t reg = 0; reg < code_.size(); ++reg) {
      const Instruction& one = code_[reg];
      if (reg == source) {
        for (const float each : at_) values[reg].push_back(Scalar::of(each));
        varies[reg] = true;
        continue;
      }
      if (one.opcode == Opcode::kConstant)
        values[reg].assign(at_.size(), Scalar{one.immediate});
      else if (reg > source)
        evaluate_at(reg, values, varies);
      if (!varies[reg] || one.type != RegisterType::kF32) continue;
      const Guard guard = guard_of(source, reg);
      if (guard == Guard::kChoice) continue;
      for (const Activation& activation : kActivations)
        if ((guard == Guard::kNone || activation.has_corners) &&
            follows(at_, values[reg], activation.value))
          found.push_back({reg, source, &activation});
    }
    return found;
  }

 private:
  // Differences that no sample of values shows but the author intended: a choice, a clamp at a
  // fractional number, a number too small to be part of an activation. A clamp at another number
  // but 0 is part of functions with corners, and intended around others.
  enum class Guard : uint8_t { kNone, kClamp, kChoice };
  Guard guard_of(size_t source, size_t reg) const {
    Guard guard = Guard::kNone;
    std::vector<bool> needed(code_.size());
    needed[reg] = true;
    for (size_t i = reg + 1; i-- > source + 1;) {
      if (!needed[i]) continue;
      const Instruction& one = code_[i];
      switch (one.opcode) {
        case Opcode::kSelect:
        case Opcode::kIsNan:
        case Opcode::kIsInf:
        case Opcode::kEqual:
        case Opcode::kLess:
        case Opcode::kLessEqual:
          return Guard::kChoice;
        default:
          break;
      }
      const bool clamps = one.opcode == Opcode::kMin || one.opcode == Opcode::kMax;
      for (int k = 0; k < operand_count(one.opcode); ++k) {
        const Instruction& operand = code_[one.operands[static_cast<size_t>(k)]];
        needed[one.operands[static_cast<size_t>(k)]] = true;
        if (operand.opcode != Opcode::kConstant || operand.type != RegisterType::kF32) continue;
        const float number = std::abs(Scalar{operand.immediate}.as<float>());
        if ((number != 0 && number < kLeastNumber) || (clamps && number != std::trunc(number)))
          return Guard::kChoice;
        if (clamps && number != 0) guard = Guard::kClamp;
      }
    }
    return guard;
  }

  void evaluate_at(size_t reg, std::vector<std::vector<Scalar>>& values,
                   std::vector<bool>& varies) const {
    const Instruction& one = code_[reg];
    const auto count = static_cast<size_t>(operand_count(one.opcode));
    if (count == 0) return;
    std::array<RegisterType, 3> types{};
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      if (values[one.operands[i]].empty()) return;
      types[i] = code_[one.operands[i]].type;
      any = any || varies[one.operands[i]];
    }
    varies[reg] = any;
    for (size_t k = 0; k < at_.size(); ++k) {
      std::array<Scalar, 3> operands;
      for (size_t i = 0; i < count; ++i) operands[i] = values[one.operands[i]][k];
      values[reg].push_back(
          evaluate(one, std::span(operands).first(count), std::span(types).first(count)));
    }
  }

  std::span<const Instruction> code_;
  std::vector<float> at_;
};

Program spelled(const Program& program, const ActivationMatch& match) {
  return rewrite_program(
      program,
      [&](ProgramBuilder& builder, size_t reg, std::span<const Reg> regs) -> std::optional<Reg> {
        if (reg != match.reg) return std::nullopt;
        return match.activation->spell({builder}, regs[match.of]);
      });
}

// A part of another match is no match of its own: the sigmoid in SiLU.
void keep_outermost(const Program& program, std::vector<ActivationMatch>& matches) {
  const auto is_part = [&](const ActivationMatch& inner) {
    return std::any_of(matches.begin(), matches.end(), [&](const ActivationMatch& outer) {
      if (outer.of > inner.of || outer.reg <= inner.reg) return false;
      std::vector<bool> reaches(program.code().size());
      reaches[inner.reg] = true;
      for (size_t reg = inner.reg + 1; reg <= outer.reg; ++reg) {
        const Instruction& one = program.code()[reg];
        for (int i = 0; i < operand_count(one.opcode); ++i)
          reaches[reg] = reaches[reg] || reaches[one.operands[i]];
      }
      return static_cast<bool>(reaches[outer.reg]);
    });
  };
  std::vector<ActivationMatch> kept;
  for (const ActivationMatch& match : matches)
    if (!is_part(match)) kept.push_back(match);
  matches = std::move(kept);
}

struct NamedFunction {
  Program program;  // with one function spelled anew
  std::string_view name;
};

std::optional<NamedFunction> name_one(const Program& program, const std::string& layer,
                                      PassRun& run) {
  if (program.code().size() > kMaxProgram) return std::nullopt;
  std::vector<ActivationMatch> matches;
  const Finder finder(program);
  for (size_t reg = 0; reg < program.code().size(); ++reg)
    if (program.code()[reg].type == RegisterType::kF32 &&
        program.code()[reg].opcode != Opcode::kConstant)
      for (const ActivationMatch& match : finder.matches_of(reg)) matches.push_back(match);
  keep_outermost(program, matches);
  const std::vector<bool> decided = decided_registers(program, {});
  for (const ActivationMatch& match : matches) {
    if (decided[match.reg]) continue;  // the last bits matter
    Program shorter = spelled(program, match);
    if (cost(shorter) < cost(program))
      return NamedFunction{std::move(shorter), match.activation->name};
    if (operand_count(program.code()[match.reg].opcode) > 1)
      run.refused(layer, fmt::format("{} already has its shortest form", match.activation->name));
  }
  return std::nullopt;
}

bool name_in(Graph& graph, LayerId id, PassRun& run) {
  const std::string layer = graph.layer(id).name;
  std::string_view named;
  const bool changed = rewrite_programs(graph, id, [&](const Program& program) {
    if (!named.empty()) return program;
    auto one = name_one(program, layer, run);
    if (!one) return program;
    named = one->name;
    return std::move(one->program);
  });
  if (changed) run.did(layer, fmt::format("{} is written in its shortest form", named));
  return changed;
}

}  // namespace

bool name_activations(Graph& graph, PassRun& run) { return sweep(graph, run, name_in); }

}  // namespace anneal
