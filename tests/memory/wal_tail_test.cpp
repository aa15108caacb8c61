// A log file written by RocksDB itself, damaged at every byte: what looks like a torn write at the
// end is exactly what lies in the last batch.
#include "memory/wal_tail.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <fstream>
#include <memory>
#include <vector>

#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

// The log file of a database that got `values`, one batch each.
std::vector<std::byte> WalOf(const std::vector<std::string>& values) {
  const support::TempFolder temp;
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  EXPECT_TRUE(rocksdb::DB::Open(options, temp.path(), &opened).ok());
  const std::unique_ptr<rocksdb::DB> db(opened);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(db->Put({}, std::to_string(i), values[i]).ok());
  std::ifstream file(support::FilesOf(temp.path(), ".log").front(), std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const ByteSpan bytes = AsBytes(text);
  return {bytes.begin(), bytes.end()};
}

TEST(WalTailTest, AWholeFileIsWholeAlsoWhenItEndsInARecord) {
  const std::vector<std::byte> wal = WalOf({"one", "two", std::string(100'000, 'x'), "four"});
  EXPECT_EQ(ExamineWal(wal), WalTail::kWhole);
  const size_t last = WalOf({"four"}).size();
  for (size_t cut = 1; cut < last; ++cut)
    EXPECT_EQ(ExamineWal(std::span(wal).first(wal.size() - cut)), WalTail::kWhole) << cut;
  EXPECT_EQ(ExamineWal({}), WalTail::kWhole);
}

TEST(WalTailTest, DamageBeforeTheLastBatchIsDamageAndInItIsATornWrite) {
  std::vector<std::byte> wal = WalOf({std::string(50, 'a'), std::string(60, 'b'), "c"});
  const size_t last = WalOf({"c"}).size();
  for (size_t at = 0; at < wal.size(); ++at) {
    wal[at] ^= std::byte{0x04};
    const WalTail found = ExamineWal(wal);
    if (at < wal.size() - last) {
      EXPECT_EQ(found, WalTail::kDamaged) << at;
    } else {
      EXPECT_NE(found, WalTail::kDamaged) << at;  // torn, or cut off where the length grew
    }
    wal[at] ^= std::byte{0x04};
  }
}

TEST(WalTailTest, ALargeTornBatchIsTornInEveryOneOfItsParts) {
  // The last batch has six parts, each in a block of its own.
  std::vector<std::byte> wal = WalOf({"one", std::string(180'000, 'x')});
  for (size_t at = 2'000; at < wal.size(); at += 31'337) {
    const std::vector<std::byte> before = wal;
    for (size_t i = at; i < std::min(wal.size(), at + 512); ++i) wal[i] = std::byte{0};
    EXPECT_EQ(ExamineWal(wal), WalTail::kTorn) << at;
    wal = before;
  }
}

TEST(WalTailTest, ZerosInTheMiddleAreDamage) {
  std::vector<std::byte> wal = WalOf({"one", std::string(80'000, 'x'), "three", "four"});
  std::fill(wal.begin() + 32'768, wal.begin() + 65'536, std::byte{0});
  EXPECT_EQ(ExamineWal(wal), WalTail::kDamaged);
}

}  // namespace
}  // namespace mneme::memory
