// The page store's contract on a real RocksDB: bytes come back as they were sealed or not at all,
// nodes are whole or not, and deleted bytes leave the disk.
#include "memory/page_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "memory/reconcile.h"
#include "tests/support/fake_page_store.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

using support::CaseGroupKey;
using support::CaseNodeKey;
using support::CheckNodeValues;
using support::WriteNodeValues;

constexpr int kLargeKeyDim = 128;  // groups of 128 KiB, in blob files

class PageStoreTest : public ::testing::Test {
 protected:
  PageStoreTest() { Reopen(); }

  void Reopen(const PageStoreOptions& options = {}) {
    stores_.Close();
    auto stores = support::Open(temp_ / "store", {}, options);
    ASSERT_TRUE(stores) << stores.error().message();
    stores_ = std::move(*stores);
  }
  PageStore& pages() { return *stores_.pages; }
  std::string path() { return temp_ / "store"; }

  support::TempFolder temp_;
  support::OpenStores stores_;
};

TEST_F(PageStoreTest, ServesWhatWasWrittenBeforeAndAfterAReopen) {
  for (uint64_t index = 0; index < 4; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim));
  for (uint64_t index = 0; index < 4; ++index)
    EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim));
  Reopen();
  for (uint64_t index = 0; index < 4; ++index) {
    EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim));
    EXPECT_TRUE(*pages().Has(CaseNodeKey("a", index)));
  }
  EXPECT_EQ(pages().counters().reads, 16U);
}

TEST_F(PageStoreTest, AnswersWhatIsNotThereOrDoesNotFit) {
  const PageKey key = CaseGroupKey(CaseNodeKey("a", 0), 0, 0);
  std::vector<std::byte> destination(64);
  EXPECT_EQ(pages().Read(key, destination).error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(WriteNodeValues(pages(), key.node));
  const auto small = pages().Read(key, destination);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(PageStoreTest, RefusesAValueWhoseHeaderIsNotItsKeys) {
  const PageKey key = CaseGroupKey(CaseNodeKey("a", 0), 0, 0);
  std::vector<std::byte> group = support::MakeGroup(key);
  const PageWrite elsewhere{.key = CaseGroupKey(key.node, 1, 0), .value = group};
  EXPECT_EQ(pages().Write(std::span(&elsewhere, 1)).error().code(), ErrorCode::kInvalidArgument);
  const PageWrite cut{.key = key, .value = std::span(group).first(group.size() - 1)};
  EXPECT_EQ(pages().Write(std::span(&cut, 1)).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(PageStoreTest, KeepsValuesOfOtherKinds) {
  const NodeKey node = CaseNodeKey("a", 0);
  std::vector<std::byte> value(sizeof(ValueHeader) + 10, std::byte{5});
  ValueHeader header;
  header.kind = ValueKind::kBoundary;
  header.payload_bytes = 10;
  std::memcpy(value.data(), &header, sizeof(header));
  const PageKey key{.node = node, .kind = ValueKind::kBoundary, .layer = 0, .key_head = 0};
  const PageWrite write{.key = key, .value = value};
  ASSERT_TRUE(pages().Write(std::span(&write, 1)));
  std::vector<std::byte> found(100);
  ASSERT_EQ(pages().Read(key, found), value.size());
  found.resize(value.size());
  EXPECT_EQ(found, value);
}

TEST_F(PageStoreTest, TellsWholeNodesFromPartialOnes) {
  const NodeKey partial = CaseNodeKey("a", 0);
  std::vector<std::byte> group = support::MakeGroup(CaseGroupKey(partial, 0, 0));
  const PageWrite write{.key = CaseGroupKey(partial, 0, 0), .value = group};
  ASSERT_TRUE(pages().Write(std::span(&write, 1)));
  EXPECT_FALSE(*pages().Has(partial));
  ASSERT_TRUE(WriteNodeValues(pages(), partial));
  EXPECT_TRUE(*pages().Has(partial));
  ASSERT_TRUE(pages().Write(std::span(&write, 1)));  // a value written again changes nothing
  EXPECT_TRUE(*pages().Has(partial));
}

TEST_F(PageStoreTest, DeletesANodeAndNothingElse) {
  for (uint64_t index = 0; index < 3; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index)));
  const NodeKey gone = CaseNodeKey("a", 1);
  ASSERT_TRUE(pages().Delete(std::span(&gone, 1)));
  EXPECT_FALSE(*pages().Has(gone));
  EXPECT_EQ(CheckNodeValues(pages(), gone).error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("a", 0)));
  EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("a", 2)));
  EXPECT_EQ(pages().List()->size(), 2U);
  ASSERT_TRUE(WriteNodeValues(pages(), gone));  // the same chunk computed again
  EXPECT_TRUE(CheckNodeValues(pages(), gone));
}

TEST_F(PageStoreTest, AThinnedNodeLosesWhatWasNamedUntilItIsAStartAgain) {
  const NodeKey node = CaseNodeKey("a", 0);
  const NodeKey before = CaseNodeKey("a", 1);
  for (const NodeKey& key : {node, before}) ASSERT_TRUE(WriteNodeValues(pages(), key));
  EXPECT_FALSE(*pages().IsThin(node));
  const ThinnedNode thinned = {.node = node,
                               .values = {CaseGroupKey(node, 0, 1), CaseGroupKey(before, 1, 0)}};
  ASSERT_TRUE(pages().Thin(std::span(&thinned, 1)));
  Reopen();
  EXPECT_TRUE(*pages().IsThin(node));
  EXPECT_FALSE(*pages().IsThin(before));
  EXPECT_TRUE(*pages().Has(node));
  std::vector<std::byte> value(64 * kKiB);
  for (int layer = 0; layer < support::kCaseLayers; ++layer) {
    for (int head = 0; head < support::kCaseKeyHeads; ++head) {
      EXPECT_EQ(bool{pages().Read(CaseGroupKey(node, layer, head), value)},
                layer != 0 || head != 1);
      EXPECT_EQ(bool{pages().Read(CaseGroupKey(before, layer, head), value)},
                layer != 1 || head != 0);
    }
  }
  // Thin already: nothing more goes.
  const ThinnedNode again = {.node = node, .values = {CaseGroupKey(node, 1, 1)}};
  ASSERT_TRUE(pages().Thin(std::span(&again, 1)));
  EXPECT_TRUE(pages().Read(CaseGroupKey(node, 1, 1), value));
  // Computed again, its boundary record with it.
  std::vector<std::byte> boundary(sizeof(ValueHeader) + 10);
  const ValueHeader header = {.kind = ValueKind::kBoundary, .payload_bytes = 10};
  std::memcpy(boundary.data(), &header, sizeof(header));
  const PageWrite write{
      .key = {.node = node, .kind = ValueKind::kBoundary, .layer = 0, .key_head = 0},
      .value = boundary};
  ASSERT_TRUE(pages().Write(std::span(&write, 1)));
  EXPECT_FALSE(*pages().IsThin(node));
  ASSERT_TRUE(pages().Thin(std::span(&again, 1)));
  EXPECT_FALSE(pages().Read(CaseGroupKey(node, 1, 1), value));
}

TEST_F(PageStoreTest, ReadersReadWhileTheMoverWrites) {
  for (uint64_t index = 0; index < 8; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index)));
  std::vector<std::thread> readers;
  std::atomic<int> failures{0};
  for (int reader = 0; reader < 4; ++reader)
    readers.emplace_back([&, reader] {
      for (int i = 0; i < 40; ++i)
        if (!CheckNodeValues(pages(), CaseNodeKey("a", static_cast<uint64_t>((i + reader) % 8))))
          failures += 1;
    });
  for (uint64_t index = 0; index < 40; ++index)
    EXPECT_TRUE(WriteNodeValues(pages(), CaseNodeKey("b", index)));
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(PageStoreTest, SyncedBytesNeedNoSyncWalAndReopenWithTrackingOn) {
  for (int round = 0; round < 3; ++round) {
    for (uint64_t index = 0; index < 20; ++index) {
      ASSERT_TRUE(
          WriteNodeValues(pages(), CaseNodeKey(fmt::format("r{}", round), index), kLargeKeyDim));
      if (index % 5 == 0) {
        ASSERT_TRUE(pages().Sync());
      }
    }
    Reopen();
  }
  EXPECT_EQ(pages().List()->size(), 60U);
}

TEST_F(PageStoreTest, DeletingEverythingAndOneCompactionFreeTheDisk) {
  // 96 MiB in three sessions, overlapping write buffers and blob files.
  for (const std::string name : {"a", "b", "c"}) {
    const auto created = support::CommitOne(*stores_.log, support::MakeSession(name));
    ASSERT_TRUE(created);
    const SessionId session = created->receipt.session;
    ASSERT_TRUE(support::CommitOne(*stores_.log, support::MakeTurn(name, session, 1, 60 * 256)));
    for (uint64_t index = 0; index < 60; ++index) {
      ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey(name, index), kLargeKeyDim));
      ASSERT_TRUE(support::CommitOne(*stores_.log, support::MakeNode(name, session, index)));
    }
  }
  EXPECT_GT(support::FolderBytes(path()), 85 * kMiB);
  for (const std::string name : {"a", "b", "c"}) {
    const SessionId session{stores_.log->FindSession("", name)->record.id()};
    const auto deleted = support::CommitOne(*stores_.log, DeleteSession{session});
    ASSERT_TRUE(deleted);
    EXPECT_EQ(deleted->freed.size(), 61U);
    ASSERT_TRUE(pages().Delete(deleted->freed));
  }
  ASSERT_TRUE(pages().Compact());
  ASSERT_TRUE(stores_.log->Compact());
  EXPECT_TRUE(pages().List()->empty());
  EXPECT_LT(support::FolderBytes(path()), 16 * kMiB);
  Reopen();
  EXPECT_LT(support::FolderBytes(path()), 16 * kMiB);
}

TEST_F(PageStoreTest, OrphansGoAtStart) {
  const auto created = support::CommitOne(*stores_.log, support::MakeSession("a"));
  ASSERT_TRUE(created);
  const SessionId session = created->receipt.session;
  ASSERT_TRUE(support::CommitOne(*stores_.log, support::MakeTurn("a", session, 1, 600)));
  for (uint64_t index = 0; index < 2; ++index) {
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index)));
    ASSERT_TRUE(support::CommitOne(*stores_.log, support::MakeNode("a", session, index)));
  }
  ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("nobody", 0)));
  for (const SessionId owner : {session, SessionId{77}}) {
    std::vector<std::byte> tail(sizeof(ValueHeader));
    ValueHeader header;
    header.kind = ValueKind::kTail;
    std::memcpy(tail.data(), &header, sizeof(header));
    const PageWrite write{
        .key = {.node = TailKeyOf(owner), .kind = ValueKind::kTail, .layer = 0, .key_head = 0},
        .value = tail};
    ASSERT_TRUE(pages().Write(std::span(&write, 1)));
  }
  Reopen();
  const auto reconciled = RemoveOrphans(*stores_.log, pages());
  ASSERT_TRUE(reconciled);
  EXPECT_EQ(reconciled->nodes_kept, 3U);
  EXPECT_EQ(reconciled->nodes_removed, 2U);
  EXPECT_FALSE(*pages().Has(CaseNodeKey("nobody", 0)));
  EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("a", 1)));
}

TEST_F(PageStoreTest, TheFakeForOtherTestsAnswersAlike) {
  support::FakePageStore fake;
  const NodeKey kept = CaseNodeKey("a", 0);
  const NodeKey gone = CaseNodeKey("a", 1);
  std::vector<std::byte> small(8);
  std::vector<std::string> answers[2];
  PageStore* stores[] = {&pages(), &fake};
  for (size_t i = 0; i < 2; ++i) {
    PageStore& store = *stores[i];
    const auto note = [&](bool good, ErrorCode code) {
      answers[i].push_back(good ? "good" : std::string(NameOf(code)));
    };
    const auto missing = store.Read(CaseGroupKey(kept, 0, 0), small);
    note(bool{missing}, missing.error().code());
    ASSERT_TRUE(WriteNodeValues(store, kept));
    ASSERT_TRUE(WriteNodeValues(store, gone));
    const auto unfit = store.Read(CaseGroupKey(kept, 0, 0), small);
    note(bool{unfit}, unfit.error().code());
    ASSERT_TRUE(store.Delete(std::span(&gone, 1)));
    EXPECT_TRUE(CheckNodeValues(store, kept));
    const ThinnedNode thinned = {.node = kept, .values = {CaseGroupKey(kept, 1, 0)}};
    ASSERT_TRUE(store.Thin(std::span(&thinned, 1)));
    note(bool{CheckNodeValues(store, kept)}, CheckNodeValues(store, kept).error().code());
    answers[i].push_back(fmt::format("{} {} {} {} {} {}", *store.Has(kept), *store.Has(gone),
                                     *store.IsThin(kept), *store.IsThin(gone), store.List()->size(),
                                     store.counters().reads));
  }
  EXPECT_EQ(answers[0], answers[1]);
  ASSERT_TRUE(WriteNodeValues(fake, kept));
  fake.Damage(CaseGroupKey(kept, 0, 0));
  EXPECT_EQ(CheckNodeValues(fake, kept).error().code(), ErrorCode::kCorruption);
  fake.SetFull(true);
  EXPECT_EQ(WriteNodeValues(fake, kept).error().reason(), Reason::kStoreFull);
}

TEST_F(PageStoreTest, AMissingOrShortBlobFileIsFoundWhenOpening) {
  for (uint64_t index = 0; index < 4; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim));
  ASSERT_TRUE(pages().Compact());
  stores_.Close();
  const std::string blob = support::FilesOf(path() + "/pages", ".blob").front();
  std::filesystem::resize_file(blob, std::filesystem::file_size(blob) / 2);
  const auto halved = support::Open(path());
  ASSERT_FALSE(halved);
  EXPECT_EQ(halved.error().code(), ErrorCode::kCorruption);
  std::filesystem::remove(blob);
  const auto missing = support::Open(path());
  ASSERT_FALSE(missing);
  EXPECT_EQ(
      missing.error().message(),
      fmt::format("blob file {} is missing", std::filesystem::path(blob).filename().string()));
  // Everything in it is derived: it may start empty, and says so.
  auto folder = StoreFolder::Open(path(), support::NoMarks());
  ASSERT_TRUE(folder);
  auto emptied = OpenPageStore(*folder, {.start_empty_if_damaged = true});
  ASSERT_TRUE(emptied) << emptied.error().message();
  EXPECT_TRUE(emptied->started_empty);
  EXPECT_TRUE(emptied->store->List()->empty());
  EXPECT_TRUE(WriteNodeValues(*emptied->store, CaseNodeKey("a", 0)));
}

TEST_F(PageStoreTest, FlippedBitsCostTheirOwnValueAndServeNoWrongByte) {
  constexpr uint64_t kNodes = 12;
  for (uint64_t index = 0; index < kNodes; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index), 32));
  ASSERT_TRUE(pages().Compact());
  stores_.Close();
  const std::string blob = support::FilesOf(path() + "/pages", ".blob").front();
  const uint64_t bytes = std::filesystem::file_size(blob);
  int damaged = 0;
  for (uint64_t flip = 0; flip < 25; ++flip) {
    const uint64_t at = 30 + (bytes - 60) * flip / 25;  // past the header
    support::FlipBit(blob, at, static_cast<int>(flip % 8));
    Reopen();
    int bad_nodes = 0;
    for (uint64_t index = 0; index < kNodes; ++index)
      if (const Status checked = CheckNodeValues(pages(), CaseNodeKey("a", index), 32); !checked) {
        EXPECT_EQ(checked.error().code(), ErrorCode::kCorruption) << checked.error().message();
        EXPECT_NE(checked.error().message().find("layer"), std::string::npos);
        bad_nodes += 1;
      }
    EXPECT_LE(bad_nodes, 1);
    damaged += bad_nodes;
    stores_.Close();
    support::FlipBit(blob, at, static_cast<int>(flip % 8));
  }
  EXPECT_GT(damaged, 20);  // the flips hit: what is left fell on bytes between values
}

// Opens damaged files without and with leave to start empty.
void ExpectRefusedOrEmptied(const std::string& path) {
  const auto refused = support::Open(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorruption) << refused.error().message();
  auto folder = StoreFolder::Open(path, support::NoMarks());
  ASSERT_TRUE(folder);
  const auto emptied = OpenPageStore(*folder, {.start_empty_if_damaged = true});
  ASSERT_TRUE(emptied) << emptied.error().message();
  EXPECT_TRUE(emptied->started_empty);
  EXPECT_TRUE(WriteNodeValues(*emptied->store, CaseNodeKey("a", 0)));
}

TEST_F(PageStoreTest, ADamagedTableIsFoundWhenOpening) {
  for (uint64_t index = 0; index < 4; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim));
  ASSERT_TRUE(pages().Compact());
  stores_.Close();
  support::FlipBit(support::FilesOf(path() + "/pages", ".sst").front(), 60, 2);
  ExpectRefusedOrEmptied(path());
}

TEST_F(PageStoreTest, AMissingManifestIsDamageToo) {
  ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", 0)));
  stores_.Close();
  for (const auto& entry : std::filesystem::directory_iterator(path() + "/pages")) {
    if (entry.path().filename().string().starts_with("MANIFEST"))
      std::filesystem::remove(entry.path());
  }
  ExpectRefusedOrEmptied(path());
}

// A compaction that meets damage stops RocksDB's writes for good; the store drops the damaged node
// and goes on, and every other node is still there.
TEST_F(PageStoreTest, DamageMetByACompactionCostsItsOwnNodeAndWritesGoOn) {
  constexpr uint64_t kNodes = 12;
  for (uint64_t index = 0; index < kNodes; ++index)
    ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim));
  ASSERT_TRUE(pages().Compact());
  stores_.Close();
  const std::string blob = support::FilesOf(path() + "/pages", ".blob").front();
  support::FlipBit(blob, std::filesystem::file_size(blob) / 2, 3);
  Reopen();
  EXPECT_FALSE(pages().Compact());  // moves every value
  EXPECT_EQ(pages().counters().mends, 0U);
  ASSERT_TRUE(WriteNodeValues(pages(), CaseNodeKey("b", 0), kLargeKeyDim));
  EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("b", 0), kLargeKeyDim));
  int lost = 0;
  for (uint64_t index = 0; index < kNodes; ++index) {
    const Status checked = CheckNodeValues(pages(), CaseNodeKey("a", index), kLargeKeyDim);
    if (checked) continue;
    EXPECT_EQ(checked.error().code(), ErrorCode::kNotFound);
    EXPECT_FALSE(*pages().Has(CaseNodeKey("a", index)));
    ++lost;
  }
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(pages().counters().mends, 1U);
  EXPECT_EQ(pages().state(), PageStoreState::kReady);
  EXPECT_TRUE(pages().Compact());
  EXPECT_TRUE(CheckNodeValues(pages(), CaseNodeKey("b", 0), kLargeKeyDim));
}

}  // namespace
}  // namespace mneme::memory
