#include "base/error.h"

namespace mneme {

Error::Error(Reason reason, std::string message)
    : code_(CodeOf(reason)), reason_(reason), message_(std::move(message)) {}

Error Error::RetryAfter(uint32_t milliseconds) && {
  retry_after_ms_ = milliseconds;
  return std::move(*this);
}

Error Error::Within(std::string_view context) && {
  message_.insert(0, ": ").insert(0, context);
  return std::move(*this);
}

ErrorCode CodeOf(Reason reason) {
  switch (reason) {
    case Reason::kTooLarge:
    case Reason::kUnsupportedMedia:
    case Reason::kKeyReused:
    case Reason::kContextLimit:
      return ErrorCode::kInvalidArgument;
    case Reason::kStoreFull:
      return ErrorCode::kResourceExhausted;
    case Reason::kNotBuilt:
    case Reason::kOutcomeUnknown:
    case Reason::kDraining:
      return ErrorCode::kUnavailable;
    case Reason::kSessionBusy:
    case Reason::kIdentityMismatch:
    case Reason::kStoreBehindReceipt:
    case Reason::kHeadMoved:
      return ErrorCode::kConflict;
    case Reason::kNone:
      break;
  }
  return ErrorCode::kInternal;
}

std::string_view NameOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kUnauthenticated:
      return "unauthenticated";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kResourceExhausted:
      return "resource_exhausted";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDeadlineExceeded:
      return "deadline_exceeded";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kCorruption:
      return "corruption";
    case ErrorCode::kDeviceFailed:
      return "device_failed";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

std::string_view NameOf(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kTooLarge:
      return "too_large";
    case Reason::kUnsupportedMedia:
      return "unsupported_media";
    case Reason::kKeyReused:
      return "key_reused";
    case Reason::kStoreFull:
      return "store_full";
    case Reason::kNotBuilt:
      return "not_built";
    case Reason::kOutcomeUnknown:
      return "outcome_unknown";
    case Reason::kSessionBusy:
      return "session_busy";
    case Reason::kIdentityMismatch:
      return "identity_mismatch";
    case Reason::kStoreBehindReceipt:
      return "store_behind_receipt";
    case Reason::kHeadMoved:
      return "head_moved";
    case Reason::kContextLimit:
      return "context_limit";
    case Reason::kDraining:
      return "draining";
  }
  return "none";
}

}  // namespace mneme
