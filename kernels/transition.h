// TransitionKind: the form of the A in S <- A S + B, of one token or of a whole chunk. A page keeps
// only the numbers its kind needs, and what a chunk costs to read follows from it.
//
//   kIdentity   A = I              nothing
//   kScalar     A = a I            one number
//   kDiagonal   A = Diag(a)        [K]
//   kDense      A                  [K, K]
//
// TokenRule: what one token does, for a decay g <= 0 that is one number, a row, or none:
//
//   S <- Diag(e^g) S;   S <- S + k^T beta (v - p S)      p is the erase key; without one, p = 0
//
// A product of diagonals is diagonal, and one erasing token makes a chunk's A dense. docs/models.md
// says which model is which rule.
#pragma once

#include <cstdint>
#include <string_view>

namespace mneme::kernels {

enum class TransitionKind : uint8_t { kDense = 0, kIdentity = 1, kScalar = 2, kDiagonal = 3 };

constexpr std::string_view NameOf(TransitionKind kind) {
  switch (kind) {
    case TransitionKind::kDense:
      return "dense";
    case TransitionKind::kIdentity:
      return "identity";
    case TransitionKind::kScalar:
      return "scalar";
    case TransitionKind::kDiagonal:
      return "diagonal";
  }
  return "?";
}

// How many numbers A is.
constexpr int64_t TransitionNumbers(TransitionKind kind, int key_dim) {
  switch (kind) {
    case TransitionKind::kDense:
      return int64_t{key_dim} * key_dim;
    case TransitionKind::kIdentity:
      return 0;
    case TransitionKind::kScalar:
      return 1;
    case TransitionKind::kDiagonal:
      return key_dim;
  }
  return 0;
}

struct TokenRule {
  TransitionKind decay = TransitionKind::kIdentity;  // not kDense
  bool erases = false;

  constexpr TransitionKind kind() const { return erases ? TransitionKind::kDense : decay; }
  bool operator==(const TokenRule&) const = default;
};

inline constexpr TokenRule kLinearRule{TransitionKind::kIdentity, false};
inline constexpr TokenRule kRetNetRule{TransitionKind::kScalar, false};
inline constexpr TokenRule kMamba2Rule = kRetNetRule;
inline constexpr TokenRule kGlaRule{TransitionKind::kDiagonal, false};
inline constexpr TokenRule kDeltaNetRule{TransitionKind::kIdentity, true};
inline constexpr TokenRule kGdnRule{TransitionKind::kScalar, true};
inline constexpr TokenRule kKdaRule{TransitionKind::kDiagonal, true};

}  // namespace mneme::kernels
