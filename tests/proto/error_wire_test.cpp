// Every code and reason goes over the wire and comes back as it was; strange ones become kInternal.
#include "proto/error_wire.h"

#include <gtest/gtest.h>

namespace mneme::proto {
namespace {

TEST(ErrorWireTest, CarriesEveryCode) {
  for (int value = 0; value <= static_cast<int>(ErrorCode::kInternal); ++value) {
    const Error sent(static_cast<ErrorCode>(value), "a sentence");
    const Error received = FromWire(ToWire(sent));
    EXPECT_EQ(received.code(), sent.code()) << NameOf(sent.code());
    EXPECT_EQ(received.reason(), Reason::kNone);
    EXPECT_EQ(received.message(), "a sentence");
  }
}

TEST(ErrorWireTest, CarriesEveryReasonWithItsCode) {
  for (int value = 1; value <= static_cast<int>(Reason::kDraining); ++value) {
    const Error sent(static_cast<Reason>(value), "a sentence");
    const Error received = FromWire(ToWire(sent));
    EXPECT_EQ(received.reason(), sent.reason()) << NameOf(sent.reason());
    EXPECT_EQ(received.code(), CodeOf(sent.reason()));
  }
}

TEST(ErrorWireTest, CarriesTheTimeToTryAgain) {
  const Error sent = Error(ErrorCode::kResourceExhausted, "queue is full").RetryAfter(250);
  EXPECT_EQ(FromWire(ToWire(sent)).retry_after_ms(), 250u);
}

TEST(ErrorWireTest, TakesACodeItDoesNotKnowForInternal) {
  v1::Error wire;
  wire.set_code("quantum_failed");
  wire.set_reason("cat");
  wire.set_message("a sentence");
  const Error received = FromWire(wire);
  EXPECT_EQ(received.code(), ErrorCode::kInternal);
  EXPECT_EQ(received.reason(), Reason::kNone);
  EXPECT_EQ(received.message(), "a sentence");
}

}  // namespace
}  // namespace mneme::proto
