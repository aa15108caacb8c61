// Tokens found by position in a session's log, against the turns that were written: every position
// of every turn, in order, at random and backwards.
#include "engine/logged_tokens.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::engine {
namespace {

class LoggedTokensTest : public ::testing::Test {
 protected:
  // Turns of a prompt part and a generated part, the sizes of some of which are 0.
  void SetUp() override {
    stores_.emplace(std::move(*support::OpenLog(folder_.path())));
    ASSERT_TRUE(support::CommitOne(log(), support::MakeSession("a")));
    std::mt19937_64 random(5);
    for (uint64_t number = 1; number <= 12; ++number) {
      memory::AppendTurn append{.session = kSession, .record = {}};
      append.record.set_kind(v1::TURN_KIND_GENERATE);
      append.record.set_expected_head(number - 1);
      for (const bool generated : {false, false, true}) {
        const size_t tokens = generated && number % 3 == 0 ? 0 : 1 + random() % 20;
        v1::TurnPart* part = append.record.add_parts();
        part->set_role(generated ? v1::TOKEN_ROLE_GENERATED : v1::TOKEN_ROLE_PROMPT);
        for (size_t token = 0; token < tokens; ++token) {
          const auto id = static_cast<uint32_t>(random() % 200'000);
          part->add_token_ids(id);
          ids_.push_back(static_cast<int32_t>(id));
          generated_.push_back(generated);
          turn_.push_back(number);
        }
      }
      const auto committed = support::CommitOne(log(), append);
      ASSERT_TRUE(committed) << committed.error().message();
    }
    head_ = log().GetSession(kSession)->head;
    ASSERT_EQ(head_.position(), ids_.size());
  }

  memory::TurnStore& log() { return *stores_->log; }

  void ExpectRunAt(LoggedTokens& logged, size_t position) {
    const auto run = logged.RunAt(position, head_);
    ASSERT_TRUE(run) << run.error().message();
    size_t end = position;
    while (end < ids_.size() && turn_[end] == turn_[position] &&
           generated_[end] == generated_[position])
      ++end;
    ASSERT_EQ(run->tokens.size(), end - position) << position;
    EXPECT_EQ(run->generated, generated_[position]);
    for (size_t at = position; at < end; ++at) EXPECT_EQ(run->tokens[at - position], ids_[at]);
  }

  static constexpr SessionId kSession{1};
  support::TempFolder folder_;
  std::optional<support::OpenStores> stores_;
  v1::HeadRecord head_;
  std::vector<int32_t> ids_;
  std::vector<bool> generated_;
  std::vector<uint64_t> turn_;
};

TEST_F(LoggedTokensTest, FindsEveryPositionInAnyOrder) {
  LoggedTokens forwards(log(), kSession);
  for (size_t position = 0; position < ids_.size(); ++position) ExpectRunAt(forwards, position);
  LoggedTokens backwards(log(), kSession);
  for (size_t position = ids_.size(); position-- > 0;) ExpectRunAt(backwards, position);
  LoggedTokens jumping(log(), kSession);
  std::mt19937_64 random(6);
  for (int jump = 0; jump < 200; ++jump) ExpectRunAt(jumping, random() % ids_.size());
}

TEST_F(LoggedTokensTest, ReadsAgainWhatItForgot) {
  LoggedTokens logged(log(), kSession);
  ExpectRunAt(logged, 0);
  logged.Forget();
  ExpectRunAt(logged, ids_.size() - 1);
  ExpectRunAt(logged, 0);
}

TEST_F(LoggedTokensTest, ATurnThatIsGoneIsAnError) {
  LoggedTokens logged(log(), kSession);
  ASSERT_TRUE(support::CommitOne(log(), memory::DeleteSession{kSession}));
  EXPECT_FALSE(logged.RunAt(0, head_));
}

}  // namespace
}  // namespace mneme::engine
