// Error says why something was not done: a code that decides what a caller does next, sometimes a
// reason from a closed list, and one sentence for people.
//
// A message is one lower-case sentence without a full stop, from the outside in: `open session 7:
// read chunk node: checksum differs`. It names values, never addresses, keys or user text.
// docs/errors.md says what each code and reason means and what a client should do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace mneme {

enum class ErrorCode : uint8_t {
  kInvalidArgument,
  kUnauthenticated,
  kPermissionDenied,
  kNotFound,
  kConflict,
  kResourceExhausted,
  kCancelled,
  kDeadlineExceeded,
  kUnavailable,
  kCorruption,
  kDeviceFailed,
  kInternal,
};

// Each reason belongs to one code; CodeOf gives it.
enum class Reason : uint8_t {
  kNone,
  kTooLarge,
  kUnsupportedMedia,
  kKeyReused,
  kStoreFull,
  kNotBuilt,
  kOutcomeUnknown,
  kSessionBusy,
  kIdentityMismatch,
  kStoreBehindReceipt,
  kHeadMoved,
  kContextLimit,
  kDraining,
};

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  Error(Reason reason, std::string message);

  ErrorCode code() const { return code_; }
  Reason reason() const { return reason_; }
  const std::string& message() const { return message_; }

  // Milliseconds after which trying again makes sense; 0 where that is not known.
  uint32_t retry_after_ms() const { return retry_after_ms_; }
  Error RetryAfter(uint32_t milliseconds) &&;

  // The same error, seen from one step further out: `context: message`.
  Error Within(std::string_view context) &&;

 private:
  ErrorCode code_;
  Reason reason_ = Reason::kNone;
  uint32_t retry_after_ms_ = 0;
  std::string message_;
};

ErrorCode CodeOf(Reason reason);

// The names on the wire and in logs, as in `resource_exhausted` and `session_busy`.
std::string_view NameOf(ErrorCode code);
std::string_view NameOf(Reason reason);

}  // namespace mneme
