// A slot file after every kind of torn write and damage: what it then holds is the record before or
// the record after, never something else.
#include "memory/slot_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::memory {
namespace {

constexpr uint32_t kKind = 7;

class SlotFileTest : public ::testing::Test {
 protected:
  SlotFileTest() : folder_(::open(temp_.path().c_str(), O_RDONLY | O_DIRECTORY)) {}

  Result<SlotFile> Open() { return SlotFile::Open(folder_, "slots", kKind); }
  void Write(const std::string& payload) {
    auto file = Open();
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Write(payload));
  }
  std::string path() { return temp_ / "slots"; }

  support::TempFolder temp_;
  FileDescriptor folder_;
};

TEST_F(SlotFileTest, KeepsTheNewestOfManyWrites) {
  auto fresh = Open();
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(fresh->payload());
  for (int i = 0; i < 5; ++i) Write("record " + std::to_string(i));
  auto file = Open();
  ASSERT_TRUE(file);
  EXPECT_EQ(file->payload(), "record 4");
  EXPECT_EQ(std::filesystem::file_size(path()), 2 * kSlotBytes);
}

TEST_F(SlotFileTest, AnyDamageLeavesTheRecordBeforeIt) {
  Write("one");
  Write("two");
  // The second record lies in the first slot; every byte of its header and payload counts.
  for (uint64_t byte = 0; byte < 48; ++byte) {
    support::FlipBit(path(), byte, static_cast<int>(byte % 8));
    auto file = Open();
    ASSERT_TRUE(file);
    EXPECT_EQ(file->payload(), "one") << "byte " << byte;
    EXPECT_EQ(file->damaged_slots(), 1);
    support::FlipBit(path(), byte, static_cast<int>(byte % 8));
  }
  EXPECT_EQ(Open()->payload(), "two");
}

TEST_F(SlotFileTest, WritesOverTheDamagedSlotFirst) {
  Write("one");
  Write("two");
  support::FlipBit(path(), 41, 0);
  Write("three");
  EXPECT_EQ(Open()->payload(), "three");
  EXPECT_EQ(Open()->damaged_slots(), 0);
}

TEST_F(SlotFileTest, RefusesAFileWithoutAWholeSlot) {
  Write("one");
  Write("two");
  support::FlipBit(path(), 0, 0);
  support::FlipBit(path(), kSlotBytes, 0);
  const auto file = Open();
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kCorruption);
}

TEST_F(SlotFileTest, RefusesAnotherKind) {
  Write("one");
  const auto file = SlotFile::Open(folder_, "slots", kKind + 1);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message(), temp_ / "slots" + " is of kind 7, expected 8");
}

}  // namespace
}  // namespace mneme::memory
