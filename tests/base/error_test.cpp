// Errors carry a code, a reason that fixes the code, and a sentence that grows from the inside out.
#include "base/error.h"

#include <gtest/gtest.h>

namespace mneme {
namespace {

TEST(ErrorTest, AReasonFixesTheCode) {
  const Error busy(Reason::kSessionBusy, "session 7 has a writer");
  EXPECT_EQ(busy.code(), ErrorCode::kConflict);
  EXPECT_EQ(NameOf(busy.code()), "conflict");
  EXPECT_EQ(NameOf(busy.reason()), "session_busy");
}

TEST(ErrorTest, WithinPutsTheOuterStepFirst) {
  Error error(ErrorCode::kCorruption, "checksum differs");
  error = std::move(error).Within("read chunk node").Within("open session 7");
  EXPECT_EQ(error.message(), "open session 7: read chunk node: checksum differs");
}

TEST(ErrorTest, CarriesWhenToTryAgain) {
  const Error full = Error(ErrorCode::kResourceExhausted, "queue is full").RetryAfter(250);
  EXPECT_EQ(full.retry_after_ms(), 250u);
}

}  // namespace
}  // namespace mneme
