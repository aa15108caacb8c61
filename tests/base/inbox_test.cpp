// The queue between threads: order, the limit as an answer, and closing.
#include "base/inbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace mneme {
namespace {

TEST(InboxTest, GivesItemsInOrder) {
  Inbox<int> inbox(3);
  ASSERT_TRUE(inbox.Push(1));
  ASSERT_TRUE(inbox.Push(2));
  EXPECT_EQ(inbox.Pop(), 1);
  EXPECT_EQ(inbox.Pop(), 2);
  EXPECT_EQ(inbox.Pop(), std::nullopt);
}

TEST(InboxTest, RefusesWhenFullAndLeavesTheItemAlone) {
  Inbox<std::string> inbox(1);
  ASSERT_TRUE(inbox.Push("first"));
  std::string second = "second";
  const Status status = inbox.Push(std::move(second));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(second, "second");  // NOLINT(bugprone-use-after-move): the contract
}

TEST(InboxTest, WakesAReaderThatWaits) {
  Inbox<int> inbox(1);
  std::thread writer([&inbox] { ASSERT_TRUE(inbox.Push(5)); });
  const std::vector<int> items = inbox.Drain(std::chrono::seconds(10));
  writer.join();
  EXPECT_EQ(items, std::vector<int>({5}));
}

TEST(InboxTest, RefusesAfterCloseButGivesWhatIsQueued) {
  Inbox<int> inbox(2);
  ASSERT_TRUE(inbox.Push(1));
  inbox.Close();
  EXPECT_FALSE(inbox.Push(2));
  EXPECT_FALSE(inbox.closed());
  EXPECT_EQ(inbox.Pop(), 1);
  EXPECT_TRUE(inbox.closed());
}

}  // namespace
}  // namespace mneme
