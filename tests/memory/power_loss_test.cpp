// Power cuts on a file system that takes back whatever was not flushed: acknowledged turns stay,
// pages are whole or absent. The same with flushing off must lose turns, or the test proves
// nothing; and that loss must be noticed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "memory/reconcile.h"
#include "tests/support/power_loss_file_system.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

using support::CommitOne;
using support::Loss;
using support::MakeSession;
using support::MakeTurn;

struct Outcome {
  uint64_t acknowledged = 0;
  uint64_t present = 0;
  uint64_t nodes = 0;
  uint64_t whole_nodes = 0;
  bool reported = false;
  std::string wrong;  // empty: nothing is
};

class Cut {
 public:
  Cut(uint32_t seed, Loss loss, bool sync) : random_(seed), seed_(seed), loss_(loss), sync_(sync) {}

  Outcome Run() {
    for (int life = 0; life < 2 && outcome_.wrong.empty(); ++life) {
      outcome_.nodes = outcome_.whole_nodes = 0;
      LiveAndLosePower();
      if (outcome_.wrong.empty()) Check();
      if (outcome_.reported) break;
    }
    return outcome_;
  }

 private:
  void LiveAndLosePower() {
    const auto disk = std::make_shared<support::PowerLossFileSystem>();
    const auto env = rocksdb::NewCompositeEnv(disk);
    {
      // Small buffers, so that flushes and compactions are cut as well.
      auto stores = support::Open(
          temp_ / "store", {.write_buffer_bytes = 128 * kKiB, .sync = sync_, .env = env.get()},
          {.write_buffer_bytes = 512 * kKiB, .env = env.get()});
      if (!stores) return Wrong("open: " + stores.error().message());
      const auto there = stores->log->FindSession("", "a");
      SessionId session{there ? there->record.id() : 0};
      if (!there) {
        const auto made = CommitOne(*stores->log, MakeSession("a"));
        if (!made) return Wrong("make: " + made.error().message());
        session = made->receipt.session;
      }
      uint64_t turn = there ? there->head.turn() : 0;
      uint64_t node = 0;
      if (there && !there->head.newest_node().empty())
        node = stores->log->GetNode({DigestFrom(there->head.newest_node())})->first_position() /
                   support::kCaseChunkTokens +
               1;
      const uint64_t rounds = 5 + random_() % 60;
      for (uint64_t round = 0; round < rounds; ++round) {
        if (!CommitOne(*stores->log, MakeTurn("a", session, ++turn, 64)))
          return Wrong("an append was refused");
        if (turn * 64 < (node + 1) * support::kCaseChunkTokens) continue;
        if (!support::WriteNodeValues(*stores->pages, support::CaseNodeKey("a", node), 32))
          return Wrong("a page was refused");
        if (!CommitOne(*stores->log, support::MakeNode("a", session, node++)))
          return Wrong("a node was refused");
      }
      if (!stores->log->FlushWatermark()) return Wrong("the watermark was refused");
      outcome_.acknowledged = turn;
      disk->PowerOff();
      (void)CommitOne(*stores->log, MakeTurn("a", session, turn + 1, 64));
    }
    disk->LoseUnsynced(loss_, seed_);
  }

  void Check() {
    auto stores = support::Open(temp_ / "store");
    if (!stores) return Wrong("reopen: " + stores.error().message());
    TurnStore& log = *stores->log;
    outcome_.reported = !log.report().regressions.empty() || !log.report().damaged.empty();
    const auto session = log.FindSession("", "a");
    outcome_.present = session ? session->head.turn() : 0;
    for (uint64_t turn = 1; turn <= outcome_.present; ++turn) {
      const auto read = log.ReadTurn({session->record.id()}, {turn});
      if (!read || !support::IsTurn("a", turn, read->record))
        return Wrong(fmt::format("turn {} is wrong", turn));
    }
    const auto nodes = stores->pages->List();
    if (!nodes) return Wrong(nodes.error().message());
    for (const NodeKey& node : *nodes) {
      outcome_.nodes += 1;
      if (!*stores->pages->Has(node)) continue;
      outcome_.whole_nodes += 1;
      if (const Status checked = support::CheckNodeValues(*stores->pages, node, 32); !checked)
        return Wrong("a whole node: " + checked.error().message());
    }
  }

  void Wrong(std::string what) { outcome_.wrong = std::move(what); }

  support::TempFolder temp_;
  std::mt19937 random_;
  uint32_t seed_;
  Loss loss_;
  bool sync_;
  Outcome outcome_;
};

class PowerLossTest : public ::testing::TestWithParam<Loss> {};

TEST_P(PowerLossTest, KeepsEveryAcknowledgedTurn) {
  const char* cuts = std::getenv("MNEME_POWER_CUTS");
  const uint32_t seeds = cuts == nullptr ? 5 : static_cast<uint32_t>(std::atoi(cuts));
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const Outcome outcome = Cut(seed, GetParam(), /*sync=*/true).Run();
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed;
    EXPECT_GE(outcome.present, outcome.acknowledged) << "seed " << seed;
    EXPECT_LE(outcome.present, outcome.acknowledged + 1) << "seed " << seed;
    EXPECT_FALSE(outcome.reported) << "seed " << seed;
  }
}

std::string NameOf(const ::testing::TestParamInfo<Loss>& loss) {
  switch (loss.param) {
    case Loss::kEverything:
      return "Everything";
    case Loss::kSomeTail:
      return "SomeTail";
    case Loss::kTornSectors:
      return "TornSectors";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Losses, PowerLossTest,
                         ::testing::Values(Loss::kEverything, Loss::kSomeTail, Loss::kTornSectors),
                         NameOf);

TEST(PowerLossControlTest, WithoutFlushingTurnsAreLostAndTheLossIsNoticed) {
  int lost = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const Outcome outcome = Cut(seed, Loss::kEverything, /*sync=*/false).Run();
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed;
    if (outcome.present >= outcome.acknowledged) continue;
    lost += 1;
    EXPECT_TRUE(outcome.reported) << "seed " << seed;
  }
  EXPECT_GE(lost, 3);  // or the file system above takes nothing away
}

TEST(PowerLossControlTest, SyncedPagesStayAndUnsyncedOnesMayGo) {
  const support::TempFolder temp;
  const auto disk = std::make_shared<support::PowerLossFileSystem>();
  const auto env = rocksdb::NewCompositeEnv(disk);
  {
    auto stores = support::Open(temp / "store", {.env = env.get()}, {.env = env.get()});
    ASSERT_TRUE(stores) << stores.error().message();
    for (uint64_t index = 0; index < 5; ++index)
      ASSERT_TRUE(support::WriteNodeValues(*stores->pages, support::CaseNodeKey("a", index)));
    ASSERT_TRUE(stores->pages->Sync());
    for (uint64_t index = 5; index < 10; ++index)
      ASSERT_TRUE(support::WriteNodeValues(*stores->pages, support::CaseNodeKey("a", index)));
    disk->PowerOff();
  }
  disk->LoseUnsynced(Loss::kEverything, 1);
  auto stores = support::Open(temp / "store");
  ASSERT_TRUE(stores) << stores.error().message();
  for (uint64_t index = 0; index < 5; ++index)
    EXPECT_TRUE(support::CheckNodeValues(*stores->pages, support::CaseNodeKey("a", index)));
  EXPECT_EQ(stores->pages->List()->size(), 5U);
}

TEST(PowerLossControlTest, AReceiptNeverClaimsAFlushThatWasNotMade) {
  const support::TempFolder temp;
  auto stores = support::OpenLog(temp / "store", {.sync = false});
  ASSERT_TRUE(stores);
  EXPECT_EQ(CommitOne(*stores->log, MakeSession("a"))->receipt.durability, v1::DURABILITY_OS);
  EXPECT_EQ(CommitOne(*stores->log, MakeTurn("a", {1}, 1))->receipt.durability, v1::DURABILITY_OS);
}

}  // namespace
}  // namespace mneme::memory
