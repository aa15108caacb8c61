// Damage below the engine: flipped bits in the files of the page store, disks that are full, a
// flush that fails. Answers stay those of an engine whose disk is whole, and what cannot be done
// has a typed answer while everybody else is served.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/engine/script.h"
#include "tests/support/power_loss_file_system.h"

namespace mneme::engine {
namespace {

namespace fs = std::filesystem;
using support::Answer;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;

class PageDamageTest : public ::testing::Test {
 protected:
  // What an engine with a whole disk answers.
  void SetUp() override {
    engine_.page_options.start_empty_if_damaged = true;  // as `mneme serve` opens it
    engine_.Start();
    for (const auto& [name, tokens] : {std::pair("a", 1500), std::pair("b", 600)}) {
      engine_.Open(name);
      engine_.Append(name, RandomIds(static_cast<size_t>(tokens), 4));
      ASSERT_TRUE(support::WaitForChunks(engine_, name, static_cast<uint64_t>(tokens) / 256));
    }
  }

  // Keeps the folder as it is now, and what is answered from it.
  void Keep(StopMode mode) {
    engine_.Stop(mode);
    fs::copy(engine_.folder(), kept_ / "kept", fs::copy_options::recursive);
    engine_.Start();
    for (const char* name : {"a", "b"}) expected_.push_back(AnswerOf(name));
    ASSERT_FALSE(expected_[0].empty());
    engine_.Stop(StopMode::kAtOnce);
  }

  void Restore() {
    for (const auto& entry : fs::directory_iterator(engine_.folder())) fs::remove_all(entry.path());
    fs::copy(kept_ / "kept", engine_.folder(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }

  std::vector<uint32_t> AnswerOf(const char* name) {
    const Answer answer = engine_.Generate(name, RandomIds(300, 5), 12);
    EXPECT_FALSE(answer.failed()) << answer.last().failed().error().message();
    missed_ += answer.failed() || !answer.done().memory().miss_reason().empty() ? 1 : 0;
    return answer.tokens();
  }

  // Flips `bits` bits in files of the page store with this extension, anywhere.
  void Flip(const std::string& extension, int bits, std::mt19937_64& random) {
    const auto files = support::FilesOf(engine_.folder() + "/pages", extension);
    ASSERT_FALSE(files.empty()) << extension;
    for (int bit = 0; bit < bits; ++bit) {
      const std::string& file = files[random() % files.size()];
      const uint64_t bytes = fs::file_size(file);
      if (bytes > 0) support::FlipBit(file, random() % bytes, static_cast<int>(random() % 8));
    }
  }

  void ExpectSameAnswers(const std::string& extension, int rounds) {
    std::mt19937_64 random(77);
    for (int round = 0; round < rounds; ++round) {
      SCOPED_TRACE(round);
      Restore();
      ASSERT_NO_FATAL_FAILURE(Flip(extension, 1 << (round % 6), random));
      const Status started = engine_.TryStart();
      ASSERT_TRUE(started) << started.error().message();
      EXPECT_EQ(AnswerOf("a"), expected_[0]);
      EXPECT_EQ(AnswerOf("b"), expected_[1]);
      engine_.Stop(StopMode::kAtOnce);
    }
    EXPECT_GT(missed_, 0) << "no flip did any damage";
  }

  support::TempFolder kept_;
  EngineCase engine_;
  std::vector<std::vector<uint32_t>> expected_;
  int missed_ = 0;  // answers that had to do without what was stored
};

TEST_F(PageDamageTest, FlippedBitsInTablesCostAReplayAndNoAnswer) {
  ASSERT_TRUE(engine_.stores().pages->Compact());
  ASSERT_NO_FATAL_FAILURE(Keep(StopMode::kFinish));
  ExpectSameAnswers(".sst", 12);
}

TEST_F(PageDamageTest, FlippedBitsInTheLogOfPagesCostAReplayAndNoAnswer) {
  ASSERT_NO_FATAL_FAILURE(Keep(StopMode::kAtOnce));
  ExpectSameAnswers(".log", 8);
}

// A table that cannot be read whole cannot be rewritten either; it must not stop what is written.
TEST_F(PageDamageTest, ADamagedTableThatIsRewrittenDoesNotStopTheServer) {
  ASSERT_TRUE(engine_.stores().pages->Compact());
  ASSERT_NO_FATAL_FAILURE(Keep(StopMode::kFinish));
  std::mt19937_64 random(5);
  int refused = 0;
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(round);
    Restore();
    ASSERT_NO_FATAL_FAILURE(Flip(".sst", 1, random));
    ASSERT_TRUE(engine_.TryStart());
    const Status compacted = engine_.stores().pages->Compact();
    refused += compacted ? 0 : 1;
    EXPECT_EQ(AnswerOf("a"), expected_[0]);
    const Answer more = engine_.Append("b", RandomIds(3000, 9));
    EXPECT_FALSE(more.failed()) << more.last().failed().error().message();
    // A restart begins a sound store, so that chunks are kept again.
    engine_.Restart(StopMode::kFinish);
    EXPECT_FALSE(engine_.Append("b", RandomIds(10, 10)).failed());
    EXPECT_TRUE(support::WaitForChunks(engine_, "b", 3610 / 256));
    EXPECT_TRUE(engine_.stores().pages->Compact());
    engine_.Stop(StopMode::kAtOnce);
  }
  EXPECT_GT(refused, 0) << "no flip did any damage";
}

TEST_F(PageDamageTest, AMissingPageStoreIsComputedAgain) {
  ASSERT_NO_FATAL_FAILURE(Keep(StopMode::kFinish));
  Restore();
  fs::remove_all(engine_.folder() + "/pages");
  engine_.Start();
  EXPECT_EQ(AnswerOf("a"), expected_[0]);
  EXPECT_EQ(AnswerOf("b"), expected_[1]);
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A disk on which opening a file for reading waits while the gate is shut.
class GatedFileSystem : public rocksdb::FileSystemWrapper {
 public:
  GatedFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "GatedFileSystem"; }
  std::atomic<bool> shut{false};

  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override {
    while (shut) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return target()->NewRandomAccessFile(path, options, file, debug);
  }
};

TEST_F(PageDamageTest, HealthSaysWhileThePageStoreIsMended) {
  ASSERT_TRUE(engine_.stores().pages->Compact());
  engine_.Stop(StopMode::kFinish);
  const std::string blob = support::FilesOf(engine_.folder() + "/pages", ".blob").front();
  support::FlipBit(blob, fs::file_size(blob) / 2, 3);
  const auto disk = std::make_shared<GatedFileSystem>();
  const auto env = rocksdb::NewCompositeEnv(disk);
  engine_.page_options.env = env.get();
  engine_.Start();
  ASSERT_FALSE(engine_.stores().pages->Compact()) << "it meets the damage";
  EXPECT_EQ(engine_.engine().Health().state(), "ready");
  EXPECT_EQ(engine_.Stats().page_store_mends(), 0u);
  disk->shut = true;
  engine_.Open("c");
  ASSERT_FALSE(engine_.Append("c", RandomIds(300, 6)).failed());
  const auto becomes = [&](const std::string& state) {
    for (int i = 0; i < 5000 && engine_.engine().Health().state() != state; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return engine_.engine().Health().state();
  };
  EXPECT_EQ(becomes("mending"), "mending");
  EXPECT_FALSE(engine_.Generate("c", RandomIds(5, 7), 3).failed()) << "others are served";
  disk->shut = false;
  EXPECT_EQ(becomes("ready"), "ready");
  EXPECT_TRUE(support::WaitForChunks(engine_, "c", 1));
  EXPECT_EQ(engine_.Stats().page_store_mends(), 1u);
  engine_.Stop(StopMode::kAtOnce);
  engine_.page_options.env = nullptr;
}

class FailingDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.log_options.env = log_env_.get();
    engine_.page_options.env = page_env_.get();
    engine_.Start();
    engine_.Open("a");
    engine_.Open("b");
    ASSERT_FALSE(engine_.Append("a", RandomIds(300, 1)).failed());
    ASSERT_FALSE(engine_.Append("b", RandomIds(100, 2)).failed());
  }
  void TearDown() override { engine_.Stop(StopMode::kAtOnce); }

  v1::Request Keyed(const std::string& key) {
    v1::Request request = support::AppendOf("a", RandomIds(20, 3));
    request.mutable_append()->set_idempotency_key(key);
    return request;
  }

  // What needs no room is served.
  void ExpectReadersAreServed() {
    v1::Request transcript;
    transcript.mutable_transcript()->set_session("b");
    EXPECT_FALSE(engine_.Ask(transcript).failed());
    EXPECT_GT(engine_.Stats("a").tokens_computed(), 0u);
    EXPECT_FALSE(engine_.Open("b").failed());
  }

  std::shared_ptr<support::PowerLossFileSystem> log_disk_ =
      std::make_shared<support::PowerLossFileSystem>();
  std::shared_ptr<support::PowerLossFileSystem> page_disk_ =
      std::make_shared<support::PowerLossFileSystem>();
  std::unique_ptr<rocksdb::Env> log_env_ = rocksdb::NewCompositeEnv(log_disk_);
  std::unique_ptr<rocksdb::Env> page_env_ = rocksdb::NewCompositeEnv(page_disk_);
  EngineCase engine_;
};

// Each refusal is an answer; the log has one line for all of them.
TEST_F(FailingDiskTest, AFullLogRefusesTurnsAndGoesOnWhenThereIsRoom) {
  ::testing::internal::CaptureStderr();
  int refusals = 2;
  log_disk_->SetFull(true);
  const Answer refused = engine_.Ask(Keyed("k"));
  EXPECT_EQ(refused.reason(), "store_full");
  EXPECT_GT(refused.last().failed().error().retry_after_ms(), 0u);
  EXPECT_EQ(engine_.Generate("b", RandomIds(5, 4), 3).reason(), "store_full");
  ExpectReadersAreServed();
  EXPECT_EQ(engine_.Open("a").last().opened().head().position(), 300u);
  log_disk_->SetFull(false);
  Answer retried = engine_.Ask(Keyed("k"));
  for (int tenth = 0; tenth < 150 && retried.failed(); ++tenth) {
    EXPECT_EQ(retried.reason(), "store_full");
    ++refusals;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    retried = engine_.Ask(Keyed("k"));
  }
  ASSERT_FALSE(retried.failed()) << "within 15 seconds";
  EXPECT_EQ(retried.last().appended().receipt().head().position(), 320u);
  EXPECT_FALSE(engine_.Generate("b", RandomIds(5, 4), 3).failed());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf(log, " store_full error=\""), 1) << log;
  EXPECT_EQ(CountOf(log, " turn_refused "), 0) << log;
  EXPECT_EQ(CountOf(log, fmt::format(" store_has_room writes_refused={}\n", refusals)), 1) << log;
}

TEST_F(FailingDiskTest, AFullPageStoreLetsOthersTalkAndLosesNothing) {
  page_disk_->SetFull(true);
  // Its chunks cannot be saved, so its prompt is told so or waits; others go on.
  Asked read = engine_.Submit(support::AppendOf("a", RandomIds(4000, 5)));
  Asked wait = engine_.Submit(GenerateOf("a", {10}, 1));
  for (int turn = 0; turn < 5; ++turn)
    EXPECT_FALSE(engine_.Generate("b", RandomIds(5, 6), 3).failed()) << turn;
  ExpectReadersAreServed();
  page_disk_->SetFull(false);
  EXPECT_FALSE(read.Wait().failed()) << "the log had room";
  const Answer told = wait.Wait();
  if (told.failed()) {
    EXPECT_EQ(told.reason(), "session_busy") << told.last().failed().error().message();
  }
  Answer after = engine_.Generate("a", RandomIds(10, 7), 5);
  for (int tenth = 0; tenth < 150 && after.failed(); ++tenth) {
    EXPECT_EQ(after.reason(), "store_full") << after.last().failed().error().message();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    after = engine_.Generate("a", RandomIds(10, 7), 5);
  }
  EXPECT_FALSE(after.failed());
}

TEST_F(FailingDiskTest, APageStoreThatTakesNoWritesIsSaidAndCostsNoTurn) {
  page_disk_->FailFlushAfter(0);
  EXPECT_FALSE(engine_.stores().pages->Sync());
  ASSERT_FALSE(engine_.Append("a", RandomIds(600, 5)).failed());
  EXPECT_EQ(engine_.engine().Health().state(), "pages_failed");
  EXPECT_FALSE(engine_.Generate("a", RandomIds(5, 4), 3).failed());
  ExpectReadersAreServed();
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(engine_.engine().Health().state(), "ready");
  EXPECT_EQ(engine_.Open("a").last().opened().head().turn(), 3u);
}

TEST_F(FailingDiskTest, AFailedFlushIsAnUnknownOutcomeThatARetryResolvesOnce) {
  log_disk_->FailFlushAfter(0);
  const Answer unknown = engine_.Ask(Keyed("k"));
  ASSERT_TRUE(unknown.failed());
  EXPECT_EQ(unknown.reason(), "outcome_unknown");
  EXPECT_EQ(engine_.Append("b", RandomIds(5, 8)).code(), "unavailable");
  EXPECT_EQ(engine_.engine().Health().state(), "failed");
  ExpectReadersAreServed();
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(engine_.engine().Health().state(), "ready");
  const Answer retried = engine_.Ask(Keyed("k"));
  ASSERT_FALSE(retried.failed()) << retried.last().failed().error().message();
  const Answer again = engine_.Ask(Keyed("k"));
  EXPECT_EQ(again.last().appended().receipt().head().position(), 320u);
  EXPECT_EQ(engine_.Open("a").last().opened().head().turn(), 2u);
}

// What happens to the files of the log after they were checked at the start.
TEST(LogDamageTest, DamageMetWhileServingRefusesTheSessionByName) {
  EngineCase engine;
  engine.Start();
  for (const char* name : {"a", "b"}) {
    engine.Open(name);
    ASSERT_FALSE(engine.Append(name, RandomIds(600, 4)).failed());
    ASSERT_TRUE(support::WaitForChunks(engine, name, 2));
  }
  engine.Restart(StopMode::kFinish);
  ASSERT_FALSE(engine.Open("a").failed());
  ASSERT_TRUE(engine.stores().log->Compact());
  for (const std::string& table : support::FilesOf(engine.folder() + "/log", ".sst"))
    fs::resize_file(table, 100);
  v1::Request transcript;
  transcript.mutable_transcript()->set_session("a");
  const Answer met = engine.Ask(transcript);
  EXPECT_EQ(met.code(), "corruption");
  const std::string first = met.last().failed().error().message();
  EXPECT_TRUE(first.starts_with("session a turn 1: ")) << first;
  EXPECT_EQ(engine.engine().Health().sessions_refused(), 1u);
  EXPECT_EQ(engine.Stats().sessions_refused(), 1u);
  v1::Request list;
  list.mutable_list();
  const v1::SessionList sessions = engine.Ask(list).last().list();
  ASSERT_EQ(sessions.sessions_size(), 2);
  EXPECT_EQ(sessions.sessions(0).refused(), "damaged");
  EXPECT_EQ(sessions.sessions(1).refused(), "") << "nothing of it was read";
  for (const Answer& later : {engine.Open("a"), engine.Append("a", {11}), engine.Ask(transcript),
                              engine.Generate("a", {11}, 3)}) {
    EXPECT_EQ(later.code(), "corruption");
    EXPECT_EQ(later.last().failed().error().message(),
              "session a: its chain of turns is damaged; restore the store from a copy, or delete "
              "the session");
  }
  v1::Request remove;
  remove.mutable_delete_()->set_session("a");
  EXPECT_EQ(engine.Ask(remove).last().deleted().turns(), 1u);
  EXPECT_EQ(engine.engine().Health().sessions_refused(), 0u);
  EXPECT_TRUE(engine.Open("a").last().opened().created());
  EXPECT_FALSE(engine.Append("a", {11}).failed());
}

}  // namespace
}  // namespace mneme::engine
