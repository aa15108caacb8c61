// The log's contract, on a real RocksDB: what was committed is there after closing and opening,
// what was refused left no trace, and every limit and conflict has its typed answer.
#include "memory/turn_store.h"

#include <gtest/gtest.h>

#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

using support::CommitOne;
using support::MakeNode;
using support::MakeSession;
using support::MakeTurn;

class TurnStoreTest : public ::testing::Test {
 protected:
  TurnStoreTest() { Reopen(); }

  void Reopen(const TurnStoreOptions& options = {}) {
    stores_.Close();
    auto stores = support::OpenLog(temp_ / "store", options);
    ASSERT_TRUE(stores) << stores.error().message();
    stores_ = std::move(*stores);
  }
  TurnStore& log() { return *stores_.log; }
  SessionId Create(const std::string& name, const std::string& tenant = "") {
    const auto created = CommitOne(log(), MakeSession(name, tenant));
    EXPECT_TRUE(created) << created.error().message();
    return created ? created->receipt.session : SessionId{};
  }
  // Turns first..last of a session, 60 tokens each.
  void Append(const std::string& name, SessionId session, uint64_t first, uint64_t last) {
    for (uint64_t turn = first; turn <= last; ++turn) {
      const auto done = CommitOne(log(), MakeTurn(name, session, turn));
      ASSERT_TRUE(done) << done.error().message();
      EXPECT_EQ(done->receipt.turn.value, turn);
      EXPECT_EQ(done->receipt.position, turn * 60);
    }
  }

  support::TempFolder temp_;
  support::OpenStores stores_;
};

TEST_F(TurnStoreTest, KeepsTurnsAndHeadsOverAReopen) {
  const SessionId session = Create("a");
  Append("a", session, 1, 20);
  const auto before = log().GetSession(session);
  ASSERT_TRUE(before);
  Reopen();
  const auto after = log().FindSession("", "a");
  ASSERT_TRUE(after);
  EXPECT_EQ(after->condition, SessionCondition::kWhole);
  EXPECT_EQ(after->record.SerializeAsString(), before->record.SerializeAsString());
  EXPECT_EQ(after->head.SerializeAsString(), before->head.SerializeAsString());
  EXPECT_EQ(after->head.position(), 1200U);
  uint64_t seen = 0;
  ASSERT_TRUE(log().ReadTurns(session, {1}, {20}, [&](const StoredTurn& turn) {
    seen += 1;
    EXPECT_TRUE(support::IsTurn("a", seen, turn.record));
    EXPECT_EQ(turn.record.first_position(), (seen - 1) * 60);
    EXPECT_EQ(turn.record.durability(), v1::DURABILITY_SYNCED);
    EXPECT_EQ(turn.record.epoch(), 1U);
    return true;
  }));
  EXPECT_EQ(seen, 20U);
  EXPECT_EQ(log().report().turns, 20U);
  EXPECT_TRUE(log().report().damaged.empty());
  EXPECT_TRUE(log().report().regressions.empty());
}

TEST_F(TurnStoreTest, CommitsManySessionsAtOnceAndAnswersEachEntryAlone) {
  const SessionId a = Create("a");
  const SessionId b = Create("b");
  std::vector<LogEntry> entries = {MakeTurn("a", a, 1),    MakeTurn("b", b, 1),
                                   MakeTurn("a", a, 2),    MakeTurn("a", a, 7),
                                   MakeTurn("x", {99}, 1), MakeTurn("b", b, 2)};
  const auto results = log().Commit(entries);
  ASSERT_EQ(results.size(), 6U);
  for (const size_t good : {0U, 1U, 2U, 5U}) EXPECT_TRUE(results[good]) << good;
  ASSERT_FALSE(results[3]);
  EXPECT_EQ(results[3].error().reason(), Reason::kHeadMoved);
  EXPECT_EQ(results[3].error().message(), "session 1: expected head 6, the head is 2");
  ASSERT_FALSE(results[4]);
  EXPECT_EQ(results[4].error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(results[0]->receipt.commit_counter, results[5]->receipt.commit_counter);
  Reopen();
  EXPECT_EQ(log().GetSession(a)->head.turn(), 2U);
  EXPECT_EQ(log().GetSession(b)->head.turn(), 2U);
}

TEST_F(TurnStoreTest, TheSameKeyTwiceIsOneTurn) {
  const SessionId session = Create("a");
  const auto first = CommitOne(log(), MakeTurn("a", session, 1));
  ASSERT_TRUE(first);
  const std::vector<LogEntry> twice = {MakeTurn("a", session, 2), MakeTurn("a", session, 2)};
  const auto both = log().Commit(twice);
  ASSERT_TRUE(both[0] && both[1]);
  EXPECT_FALSE(both[0]->repeated);
  EXPECT_TRUE(both[1]->repeated);
  EXPECT_EQ(both[0]->receipt.chain, both[1]->receipt.chain);
  Reopen();
  const auto again = CommitOne(log(), MakeTurn("a", session, 1));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->repeated);
  EXPECT_EQ(again->receipt.turn, first->receipt.turn);
  EXPECT_EQ(again->receipt.chain, first->receipt.chain);
  EXPECT_EQ(again->receipt.epoch, first->receipt.epoch);
  EXPECT_EQ(again->receipt.position, first->receipt.position);
  EXPECT_EQ(log().GetSession(session)->head.turn(), 2U);
}

TEST_F(TurnStoreTest, AKeyUsedForAnotherRequestIsRefused) {
  const SessionId session = Create("a");
  Append("a", session, 1, 1);
  AppendTurn other = MakeTurn("a", session, 2);
  other.record.set_idempotency_key(MakeTurn("a", session, 1).record.idempotency_key());
  const auto refused = CommitOne(log(), other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason(), Reason::kKeyReused);
}

TEST_F(TurnStoreTest, RemembersTheNewestThousandAndTwentyFourKeys) {
  const SessionId session = Create("a");
  std::vector<LogEntry> entries;
  for (uint64_t turn = 1; turn <= kIdempotencyKeysMax + 6; ++turn)
    entries.emplace_back(MakeTurn("a", session, turn, 1));
  for (size_t at = 0; at < entries.size(); at += 200)
    for (const auto& done :
         log().Commit(std::span(entries).subspan(at, std::min<size_t>(200, entries.size() - at))))
      ASSERT_TRUE(done);
  const auto key = [&](uint64_t turn) {
    return *log().FindKey(session, MakeTurn("a", session, turn, 1).record.idempotency_key());
  };
  EXPECT_FALSE(key(6));
  ASSERT_TRUE(key(7));
  EXPECT_EQ(key(7)->turn(), 7U);
  EXPECT_TRUE(key(kIdempotencyKeysMax + 6));
}

TEST_F(TurnStoreTest, NamesAreUniqueInATenantAndFollowARename) {
  const SessionId a = Create("a", "one");
  Create("a", "two");
  const auto taken = CommitOne(log(), MakeSession("a", "one"));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), ErrorCode::kConflict);
  ASSERT_TRUE(CommitOne(log(), UpdateSession{.session = a, .name = "b"}));
  Reopen();
  EXPECT_EQ(log().FindSession("one", "b")->record.id(), a.value);
  EXPECT_FALSE(log().FindSession("one", "a"));
  EXPECT_EQ(log().ListSessions("two").size(), 1U);
  Create("a", "one");
}

TEST_F(TurnStoreTest, IdsAreNeverGivenTwice) {
  const SessionId first = Create("a");
  ASSERT_TRUE(CommitOne(log(), DeleteSession{first}));
  Reopen();
  EXPECT_GT(Create("a").value, first.value);
}

TEST_F(TurnStoreTest, LimitsAreTypedAnswers) {
  Reopen({.sessions_max = 2});
  const SessionId session = Create("a");
  EXPECT_EQ(log().SessionsFree(), 1U);
  EXPECT_EQ(CommitOne(log(), MakeSession("")).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CommitOne(log(), MakeSession(std::string(257, 'x'))).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CommitOne(log(), MakeSession("b", std::string(65, 'x'))).error().code(),
            ErrorCode::kInvalidArgument);
  CreateSession large = MakeSession("large");
  large.record.set_identity(std::string(kIdentityBytesMax + 1, 'x'));
  EXPECT_EQ(CommitOne(log(), large).error().reason(), Reason::kTooLarge);
  Create("b");
  EXPECT_EQ(CommitOne(log(), MakeSession("c")).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(log().SessionsFree(), 0U);
  Reopen({.sessions_max = 1});
  EXPECT_EQ(log().SessionsFree(), 0U);
  AppendTurn turn = MakeTurn("a", session, 1);
  turn.record.set_idempotency_key(std::string(65, 'k'));
  EXPECT_EQ(CommitOne(log(), turn).error().code(), ErrorCode::kInvalidArgument);
  turn = MakeTurn("a", session, 1);
  turn.record.set_kind(v1::TURN_KIND_UNSPECIFIED);
  EXPECT_EQ(CommitOne(log(), turn).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(log().GetSession(session)->head.turn(), 0U);
}

TEST_F(TurnStoreTest, NodesCountTheirReferencesAndAreFreedUpwards) {
  const SessionId a = Create("a");
  Append("a", a, 1, 15);  // 900 tokens
  for (uint64_t index = 0; index < 3; ++index)
    ASSERT_TRUE(CommitOne(log(), MakeNode("a", a, index)));
  for (uint64_t index = 0; index < 3; ++index)
    EXPECT_EQ(log().GetNode(support::CaseNodeKey("a", index))->references(), 1U) << index;
  // A second session with the same first two chunks shares them.
  const SessionId b = Create("b");
  Append("b", b, 1, 15);
  for (uint64_t index = 0; index < 2; ++index) {
    AddNode shared = MakeNode("a", b, index);
    ASSERT_TRUE(CommitOne(log(), shared));
  }
  EXPECT_EQ(log().GetNode(support::CaseNodeKey("a", 1))->references(), 2U);
  const auto deleted = CommitOne(log(), DeleteSession{a});
  ASSERT_TRUE(deleted);
  EXPECT_EQ(deleted->freed, (std::vector{support::CaseNodeKey("a", 2), TailKeyOf(a)}));
  EXPECT_TRUE(*log().HasNode(support::CaseNodeKey("a", 1)));
  Reopen();
  const auto last = CommitOne(log(), DeleteSession{b});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->freed, (std::vector{support::CaseNodeKey("a", 1), support::CaseNodeKey("a", 0),
                                      TailKeyOf(b)}));
  EXPECT_FALSE(*log().HasNode(support::CaseNodeKey("a", 0)));
}

TEST_F(TurnStoreTest, MovingBackToAnOlderNodeFreesTheNewerOnes) {
  const SessionId a = Create("a");
  Append("a", a, 1, 15);
  for (uint64_t index = 0; index < 3; ++index)
    ASSERT_TRUE(CommitOne(log(), MakeNode("a", a, index)));
  const auto moved =
      CommitOne(log(), MoveToNode{.session = a, .node = support::CaseNodeKey("a", 0)});
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->freed,
            (std::vector{support::CaseNodeKey("a", 2), support::CaseNodeKey("a", 1)}));
  EXPECT_EQ(log().GetNode(support::CaseNodeKey("a", 0))->references(), 1U);
  ASSERT_TRUE(CommitOne(log(), MakeNode("a", a, 1)));
}

TEST_F(TurnStoreTest, RefusesANodeWithoutItsParentOrBeyondTheLog) {
  const SessionId a = Create("a");
  Append("a", a, 1, 9);  // 540 tokens
  EXPECT_EQ(CommitOne(log(), MakeNode("a", a, 1)).error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(CommitOne(log(), MakeNode("a", a, 0)));
  ASSERT_TRUE(CommitOne(log(), MakeNode("a", a, 1)));
  EXPECT_EQ(CommitOne(log(), MakeNode("a", a, 2)).error().message(),
            "a chunk node up to position 768 of session 1, whose log ends at 540");
}

TEST_F(TurnStoreTest, DeletingASessionRemovesItsTurnsAndKeys) {
  const SessionId a = Create("a");
  Append("a", a, 1, 3);
  const std::vector<LogEntry> group = {MakeTurn("a", a, 4), DeleteSession{a}, MakeSession("a")};
  const auto results = log().Commit(group);
  for (const auto& result : results) ASSERT_TRUE(result) << result.error().message();
  Reopen();
  EXPECT_FALSE(log().GetSession(a));
  EXPECT_EQ(log().ReadTurn(a, {1}).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(*log().FindKey(a, MakeTurn("a", a, 1).record.idempotency_key()));
  const SessionId fresh{log().FindSession("", "a")->record.id()};
  EXPECT_EQ(log().GetSession(fresh)->head.turn(), 0U);
  Append("a", fresh, 1, 1);
}

TEST_F(TurnStoreTest, ASessionOutOfAnotherIsNotBuiltYet) {
  Create("a");
  CreateSession entry = MakeSession("b", "");
  entry.record.mutable_parent();
  const auto made = CommitOne(log(), entry);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().reason(), Reason::kNotBuilt);
  EXPECT_EQ(log().FindSession("", "b").error().code(), ErrorCode::kNotFound);
}

TEST_F(TurnStoreTest, AReceiptNewerThanTheStoreIsNoticed) {
  const SessionId a = Create("a");
  const auto done = CommitOne(log(), MakeTurn("a", a, 1));
  ASSERT_TRUE(done);
  EXPECT_TRUE(log().CheckReceipt(done->receipt));
  Receipt newer = done->receipt;
  newer.turn.value = 2;
  EXPECT_EQ(log().CheckReceipt(newer).error().reason(), Reason::kStoreBehindReceipt);
  Receipt other = done->receipt;
  other.chain.bytes[0] ^= std::byte{1};
  EXPECT_EQ(log().CheckReceipt(other).error().reason(), Reason::kStoreBehindReceipt);
}

TEST_F(TurnStoreTest, AFullDiskByItsMarkRefusesTurnsAndStillDeletes) {
  const SessionId a = Create("a");
  stores_.Close();
  auto folder = StoreFolder::Open(temp_ / "store", {.soft_bytes = 1, .hard_bytes = kGiB * kGiB});
  ASSERT_TRUE(folder);
  auto full = OpenTurnStore(*folder);
  ASSERT_TRUE(full);
  const auto refused = CommitOne(**full, MakeTurn("a", a, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason(), Reason::kStoreFull);
  EXPECT_GT(refused.error().retry_after_ms(), 0U);
  EXPECT_TRUE((*full)->GetSession(a));
  EXPECT_TRUE(CommitOne(**full, DeleteSession{a}));
}

}  // namespace
}  // namespace mneme::memory
