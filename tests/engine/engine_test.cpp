// What the engine promises its callers, on a tiny random model over real stores: acknowledgements,
// refusals, cut-off turns, repeated requests. Answers that should be equal are compared token by
// token.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "memory/ladder.h"
#include "tests/engine/script.h"

namespace mneme::engine {
namespace {

using support::Answer;
using support::AppendOf;
using support::Asked;
using support::EngineCase;
using support::GenerateOf;
using support::RandomIds;

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.Start();
    ASSERT_FALSE(engine_.Open("a").failed());
  }

  EngineCase engine_;
};

TEST_F(EngineTest, OpensAFreshSessionAndFindsItAgain) {
  const Answer first = engine_.Open("b");
  EXPECT_TRUE(first.last().opened().created());
  const Answer second = engine_.Open("b");
  EXPECT_FALSE(second.last().opened().created());
  v1::Request request;
  request.mutable_open()->set_session("nobody");
  EXPECT_EQ(engine_.Ask(request).code(), "not_found");
}

TEST_F(EngineTest, AppendsAreAcknowledgedWithTheirReceipt) {
  const Answer answer = engine_.Append("a", RandomIds(300, 1));
  const v1::Appended& appended = answer.last().appended();
  EXPECT_EQ(appended.tokens(), 300u);
  EXPECT_EQ(appended.receipt().head().turn(), 1u);
  EXPECT_EQ(appended.receipt().head().position(), 300u);
  EXPECT_EQ(appended.receipt().head().chain_hash().size(), 32u);
  EXPECT_EQ(appended.receipt().durability(), "synced");
  EXPECT_EQ(appended.memory().fresh_tokens(), 300u);
  EXPECT_EQ(appended.memory().pending_tokens(), 0u);
  EXPECT_EQ(engine_.Stats("a").tokens_computed(), 300u);
}

TEST_F(EngineTest, AnAnswerIsWhatItsTokensSaid) {
  const Answer answer = engine_.Generate("a", RandomIds(70, 2), 30);
  ASSERT_FALSE(answer.failed()) << answer.code();
  EXPECT_EQ(answer.done().generated_tokens(), answer.tokens().size());
  EXPECT_EQ(answer.done().text(), answer.text());
  EXPECT_EQ(answer.done().prompt_tokens(), 70u);
  EXPECT_EQ(answer.done().receipt().head().position(), 70 + answer.tokens().size());
  EXPECT_EQ(answer.done().memory().pending_tokens(), 1u);  // the last token waits for its turn
  const v1::MemoryReport& memory = answer.done().memory();
  EXPECT_EQ(memory.restored_tokens() + memory.replayed_tokens() + memory.fresh_tokens(),
            70 + answer.tokens().size() - 1);
}

TEST_F(EngineTest, ASecondWriteIsBusyAtOnceAndReadersAreNot) {
  Asked first = engine_.SubmitHeld(GenerateOf("a", RandomIds(600, 3), 40));
  ASSERT_TRUE(first.WaitForTokens(1));
  const Answer second = engine_.Generate("a", {11}, 1);
  const Answer third = engine_.Append("a", {11});
  v1::Request transcript;
  transcript.mutable_transcript()->set_session("a");
  const Answer read = engine_.Ask(transcript);
  EXPECT_FALSE(read.failed());
  EXPECT_FALSE(first.call->finished());
  EXPECT_EQ(second.reason(), "session_busy");
  EXPECT_EQ(third.reason(), "session_busy");
  EXPECT_FALSE(first.Wait().failed());
}

TEST_F(EngineTest, ACancelledAnswerLeavesTheHeadAndLaterAnswersUnchanged) {
  EngineCase twin;
  twin.Start();
  for (EngineCase* one : {&engine_, &twin}) {
    one->Open("a");
    one->Append("a", RandomIds(500, 4));
  }
  for (int round = 0; round < 3; ++round) {
    Asked cut = engine_.SubmitHeld(GenerateOf("a", RandomIds(280, 5), 300));
    ASSERT_TRUE(cut.WaitForTokens(static_cast<size_t>(round)));
    cut.call->Cancel();
    const Answer answer = cut.Wait();
    EXPECT_EQ(answer.code(), "cancelled");
  }
  const Answer here = engine_.Generate("a", RandomIds(40, 6), 40);
  const Answer there = twin.Generate("a", RandomIds(40, 6), 40);
  EXPECT_EQ(here.tokens(), there.tokens());
  EXPECT_EQ(here.done().receipt().head().position(), there.done().receipt().head().position());
  EXPECT_EQ(here.done().receipt().head().turn(), 2u);
}

TEST_F(EngineTest, ACutOffAnswerIsKeptWholeWhereThatWasAsked) {
  v1::Request request = GenerateOf("a", RandomIds(50, 7), 4000);
  request.mutable_generate()->set_on_disconnect(v1::ON_DISCONNECT_KEEP);
  Asked cut = engine_.SubmitHeld(request);
  ASSERT_TRUE(cut.WaitForTokens(3));
  cut.call->Cancel();
  const Answer answer = cut.Wait();
  ASSERT_FALSE(answer.failed());
  EXPECT_TRUE(answer.done().truncated());
  EXPECT_EQ(answer.done().stop_reason(), "cancelled");
  EXPECT_EQ(answer.done().text(), answer.text());
  EXPECT_EQ(answer.done().receipt().head().position(), 50 + answer.tokens().size());
}

TEST_F(EngineTest, ADeadlineEndsAnAnswer) {
  Asked late =
      engine_.Submit(GenerateOf("a", RandomIds(2000, 8), 10), RealClock().MonotonicUs() + 2000);
  EXPECT_EQ(late.Wait().code(), "deadline_exceeded");
  EXPECT_EQ(engine_.Open("a").last().opened().head().turn(), 0u);
}

TEST_F(EngineTest, ARepeatedKeyGivesTheRecordedAnswer) {
  v1::Request append = AppendOf("a", RandomIds(40, 9));
  append.mutable_append()->set_idempotency_key("k1");
  const Answer first = engine_.Ask(append);
  const Answer again = engine_.Ask(append);
  EXPECT_EQ(first.last().appended().receipt().SerializeAsString(),
            again.last().appended().receipt().SerializeAsString());
  v1::Request generate = GenerateOf("a", RandomIds(20, 10), 12);
  generate.mutable_generate()->set_idempotency_key("k2");
  const Answer said = engine_.Ask(generate);
  engine_.Restart(StopMode::kAtOnce);
  const Answer said_again = engine_.Ask(generate);
  EXPECT_EQ(said.done().text(), said_again.done().text());
  EXPECT_EQ(said.done().receipt().head().SerializeAsString(),
            said_again.done().receipt().head().SerializeAsString());
  EXPECT_EQ(said.done().stop_reason(), said_again.done().stop_reason());
  generate.mutable_generate()->set_max_tokens(13);
  EXPECT_EQ(engine_.Ask(generate).reason(), "key_reused");
  // The same fields in a request of the other kind are the same bytes.
  v1::Request plain;
  plain.mutable_generate()->set_session("a");
  *plain.mutable_generate()->mutable_input() = append.append().input();
  plain.mutable_generate()->set_idempotency_key("k1");
  EXPECT_EQ(engine_.Ask(plain).reason(), "key_reused");
  EXPECT_EQ(engine_.Open("a").last().opened().head().turn(), 2u);
}

TEST_F(EngineTest, AnotherHeadThanTheExpectedOneIsRefusedWithTheTrueOne) {
  engine_.Append("a", RandomIds(10, 11));
  v1::Request request = AppendOf("a", RandomIds(10, 12));
  request.mutable_append()->mutable_expected_head()->set_turn(0);
  const Answer moved = engine_.Ask(request);
  EXPECT_EQ(moved.reason(), "head_moved");
  EXPECT_EQ(moved.last().failed().head().turn(), 1u);
  request.mutable_append()->mutable_expected_head()->set_turn(9);
  request.mutable_append()->mutable_expected_head()->set_chain_hash(std::string(32, 'x'));
  EXPECT_EQ(engine_.Ask(request).reason(), "store_behind_receipt");
  request.mutable_append()->mutable_expected_head()->set_turn(1);
  request.mutable_append()->mutable_expected_head()->clear_chain_hash();
  EXPECT_FALSE(engine_.Ask(request).failed());
}

TEST_F(EngineTest, EndsBeforeAStopStringAndShowsNoPartOfIt) {
  const Answer whole = engine_.Generate("a", RandomIds(60, 13), 60);
  const std::string text = whole.done().text();
  ASSERT_GT(text.size(), 12u);
  engine_.Open("b");
  v1::Request request = GenerateOf("b", RandomIds(60, 13), 60);
  const std::string stop = text.substr(text.size() / 2, 3);
  request.mutable_generate()->add_stop(stop);
  request.mutable_generate()->add_stop("never said, surely");
  const Answer cut = engine_.Ask(request);
  ASSERT_FALSE(cut.failed()) << cut.code();
  EXPECT_EQ(cut.done().stop_reason(), "stop_string");
  EXPECT_EQ(cut.done().text(), text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.text(), cut.done().text());
}

TEST_F(EngineTest, RefusesIdsOutsideTheVocabulary) {
  EXPECT_EQ(engine_.Append("a", {144}).code(), "invalid_argument");
  EXPECT_EQ(engine_.Append("a", {4'000'000'000u}).code(), "invalid_argument");
  EXPECT_EQ(engine_.Generate("a", {}, 3).code(), "invalid_argument");  // nothing to go on from
}

TEST_F(EngineTest, DeletingFreesAllThatWasStored) {
  engine_.Append("a", RandomIds(1100, 14));
  ASSERT_TRUE(support::WaitForChunks(engine_, "a", 4));
  EXPECT_FALSE(engine_.stores().pages->List()->empty());
  v1::Request request;
  request.mutable_delete_()->set_session("a");
  EXPECT_EQ(engine_.Ask(request).last().deleted().turns(), 1u);
  EXPECT_EQ(engine_.Append("a", {11}).code(), "not_found");
  engine_.Stop(StopMode::kFinish);
  engine_.Start();
  EXPECT_TRUE(engine_.stores().pages->List()->empty());
  EXPECT_TRUE(engine_.Open("a").last().opened().created());
}

// As after a first message that was refused.
TEST_F(EngineTest, ASessionThatHoldsNothingIsNotListedAndIsAsFreshAsANewOne) {
  EXPECT_TRUE(engine_.Append("a", {4'000'000'000u}).failed());
  v1::Request list;
  list.mutable_list();
  EXPECT_EQ(engine_.Ask(list).last().list().sessions_size(), 0);
  v1::Request fresh;
  fresh.mutable_open()->set_session("a");
  fresh.mutable_open()->set_create(true);
  fresh.mutable_open()->set_must_be_fresh(true);
  EXPECT_TRUE(engine_.Ask(fresh).last().has_opened());
  EXPECT_FALSE(engine_.Append("a", {11}).failed());
  EXPECT_EQ(engine_.Ask(list).last().list().sessions_size(), 1);
  EXPECT_EQ(engine_.Ask(fresh).code(), "conflict");
}

TEST_F(EngineTest, ListsSessionsWithTheirBytes) {
  engine_.Append("a", {11});
  engine_.Open("b");
  engine_.Append("b", RandomIds(600, 15));
  ASSERT_TRUE(support::WaitForChunks(engine_, "b", 2));
  v1::Request request;
  request.mutable_list();
  const Answer answer = engine_.Ask(request);
  const v1::SessionList& list = answer.last().list();
  ASSERT_EQ(list.sessions_size(), 2);
  EXPECT_EQ(list.sessions(1).session(), "b");
  EXPECT_EQ(list.sessions(1).reader(), "hla");
  EXPECT_GT(list.sessions(1).bytes().disk_bytes(), 0u);
  EXPECT_EQ(list.sessions(0).bytes().disk_bytes(), 0u);
}

TEST_F(EngineTest, BytesOnDiskAreThoseThatAreThere) {
  const auto listed = [&] {
    v1::Request request;
    request.mutable_list();
    return engine_.Ask(request).last().list().sessions(0);
  };
  const auto restart = [&] {
    engine_.Stop(StopMode::kFinish);
    engine_.Start();
  };
  engine_.Open("a");
  engine_.Append("a", RandomIds(1100, 14));
  ASSERT_TRUE(support::WaitForChunks(engine_, "a", 4));
  restart();
  const uint64_t kept = listed().bytes().disk_bytes();
  EXPECT_GT(kept, 0u);
  EXPECT_FALSE(listed().other_identity());
  EXPECT_FALSE(engine_.Stats("a").other_identity());

  // Another router: what lies there is laid out as that one wants it.
  engine_.options.identity.router_hash[0] = std::byte{1};
  restart();
  EXPECT_TRUE(listed().other_identity());
  EXPECT_TRUE(engine_.Stats("a").other_identity());
  EXPECT_EQ(listed().bytes().disk_bytes(), 0u);
  EXPECT_EQ(engine_.Stats().bytes().disk_bytes(), 0u);
  engine_.options.identity.router_hash[0] = {};
  restart();
  EXPECT_EQ(listed().bytes().disk_bytes(), kept);

  // The newest chunk alone is lost, then all of them.
  const auto nodes = *engine_.stores().pages->List();
  const auto stored = engine_.stores().log->FindSession("", "a");
  const memory::NodeKey newest{memory::DigestFrom(stored->head.newest_node())};
  ASSERT_TRUE(engine_.stores().pages->Delete({&newest, 1}));
  EXPECT_EQ(listed().bytes().disk_bytes(), memory::HistoryBytes(engine_.model().layout(), 3));
  ASSERT_TRUE(engine_.stores().pages->Delete(nodes));
  EXPECT_EQ(listed().bytes().disk_bytes(), 0u);
  EXPECT_EQ(engine_.Stats("a").bytes().disk_bytes(), 0u);
  const v1::StatsReply stats = engine_.Stats("a");
  EXPECT_EQ(stats.chunks(), 4u);
  EXPECT_EQ(stats.reader(), "hla");
  EXPECT_EQ(stats.state(), "parked");
  EXPECT_GT(stats.last_used_us(), 0);
  EXPECT_EQ(stats.sessions() + stats.sessions_running(), 0u);  // those are the server's
  engine_.Append("a", RandomIds(10, 15));                      // computed again
  ASSERT_TRUE(support::WaitForChunks(engine_, "a", 4));
  EXPECT_EQ(listed().bytes().disk_bytes(), kept);
}

TEST_F(EngineTest, ExplainsWhatEachTokenRead) {
  engine_.Append("a", RandomIds(1000, 16));
  v1::Request request = GenerateOf("a", RandomIds(30, 17), 6);
  request.mutable_generate()->set_explain(true);
  const Answer said = engine_.Ask(request);
  ASSERT_FALSE(said.failed());
  v1::Request ask;
  ask.mutable_explain()->set_session("a");
  const v1::Explanation before = engine_.Ask(ask).last().explanation();
  ASSERT_EQ(before.tokens_size(), static_cast<int>(said.tokens().size()));
  ASSERT_GT(before.tokens(0).contributions_size(), 0);
  EXPECT_GT(before.tokens(0).contributions(0).share(), 0);
  EXPECT_FALSE(before.tokens(0).contributions(0).text().empty());
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(engine_.Ask(ask).last().explanation().SerializeAsString(), before.SerializeAsString());
}

TEST_F(EngineTest, AnotherIdentityIsRefusedWithBothShown) {
  engine_.Append("a", RandomIds(10, 18));
  engine_.Stop(StopMode::kFinish);
  engine_.options.identity.router_hash[0] = std::byte{1};
  engine_.Start();
  const Answer answer = engine_.Open("a");
  EXPECT_EQ(answer.reason(), "identity_mismatch");
  EXPECT_EQ(answer.last().failed().error().message(),
            "session a: it was made with another model: other router (none in the session, "
            "01000000 here); serve it with the model folder that it was made with, or open another "
            "session");
}

// More sessions than are looked at between two steps.
TEST_F(EngineTest, StatsAndListSeeEverySessionWhileAnAnswerIsWritten) {
  engine_.Append("a", RandomIds(600, 30));
  ASSERT_TRUE(support::WaitForChunks(engine_, "a", 2));
  for (int session = 0; session < 200; ++session)
    engine_.Append(engine_.Open(std::to_string(session)).last().opened().session(), {11, 12, 13});
  Asked running = engine_.SubmitHeld(GenerateOf("a", RandomIds(30, 31), 300));
  ASSERT_TRUE(running.WaitForTokens(1));
  const v1::StatsReply stats = engine_.Stats();
  EXPECT_EQ(stats.sessions(), 201u);
  EXPECT_EQ(stats.turns(), 201u);
  EXPECT_EQ(stats.tokens(), 600u + 200 * 3);
  EXPECT_EQ(stats.chunks(), 2u);
  EXPECT_EQ(stats.bytes().disk_bytes(), memory::HistoryBytes(engine_.model().layout(), 2));
  v1::Request list;
  list.mutable_list()->set_sessions_max(150);
  const v1::SessionList first = engine_.Ask(list).last().list();
  ASSERT_EQ(first.sessions_size(), 150);
  EXPECT_TRUE(first.more());
  EXPECT_EQ(first.sessions(0).session(), "0");
  list.mutable_list()->set_after(first.sessions(149).session());
  const v1::SessionList rest = engine_.Ask(list).last().list();
  ASSERT_EQ(rest.sessions_size(), 51);
  EXPECT_FALSE(rest.more());
  EXPECT_EQ(rest.sessions(50).session(), "a");
  EXPECT_FALSE(running.call->finished());
}

int mlp_faults = 0;  // calls that are still to fail

Status FailingMlp(const kernels::MlpArgs& args, kernels::Stream& stream) {
  if (mlp_faults > 0) {
    --mlp_faults;
    return Fail(ErrorCode::kDeviceFailed, "mlp: the device is gone");
  }
  return kernels::CpuKernels().mlp(args, stream);
}

TEST_F(EngineTest, AFailedDeviceIsTypedAndCostsTheWriteOnly) {
  engine_.Open("b");
  engine_.Append("a", RandomIds(200, 20));
  engine_.Append("b", RandomIds(200, 20));
  engine_.Stop(StopMode::kFinish);
  engine_.kernels.mlp = FailingMlp;
  engine_.Start();
  const auto expected = engine_.Generate("b", RandomIds(5, 21), 10).tokens();
  mlp_faults = 1;
  const Answer failed = engine_.Generate("a", RandomIds(5, 21), 10);
  EXPECT_EQ(failed.code(), "device_failed");
  EXPECT_EQ(mlp_faults, 0);
  const Answer again = engine_.Generate("a", RandomIds(5, 21), 10);
  EXPECT_EQ(again.tokens(), expected) << "nothing of the failed write is left";
  EXPECT_EQ(again.done().receipt().head().turn(), 2u);
}

TEST_F(EngineTest, DrainingRefusesWhatComesAndEndsWhatIs) {
  Asked running = engine_.Submit(GenerateOf("a", RandomIds(30, 19), 20));
  EXPECT_TRUE(engine_.engine().Drain(20'000));
  EXPECT_TRUE(running.Wait().last().has_done());
  EXPECT_EQ(engine_.Append("a", {11}).reason(), "draining");
}

TEST_F(EngineTest, MoreSessionsThanPlacesTakeTurns) {
  engine_.Stop(StopMode::kFinish);
  engine_.options.running_max = 2;
  engine_.Start();
  std::vector<Asked> asked;
  for (int session = 0; session < 6; ++session) {
    const std::string name = "s" + std::to_string(session);
    engine_.Open(name);
    asked.push_back(engine_.Submit(GenerateOf(name, RandomIds(100, 20), 10)));
  }
  std::vector<uint32_t> first;
  for (Asked& one : asked) {
    const Answer answer = one.Wait();
    ASSERT_FALSE(answer.failed()) << answer.last().failed().error().message();
    if (first.empty()) first = answer.tokens();
    EXPECT_EQ(answer.tokens(), first);
  }
  EXPECT_LE(engine_.Stats().sessions_running(), 2u);
}

TEST_F(EngineTest, IdleSessionsBeyondTheirTokensAreParkedAndGoOnAsIfTheyHadNotBeen) {
  const auto talk = [&](const std::string& prefix) {
    std::vector<std::vector<uint32_t>> answers;
    for (int turn = 0; turn < 3; ++turn) {
      for (int session = 0; session < 3; ++session) {
        const Answer answer =
            engine_.Generate(prefix + std::to_string(session), RandomIds(20, 30 + turn), 6);
        EXPECT_FALSE(answer.failed());
        answers.push_back(answer.tokens());
      }
    }
    return answers;
  };
  for (const char* session : {"x0", "x1", "x2", "y0", "y1", "y2"}) engine_.Open(session);
  const auto expected = talk("x");
  EXPECT_EQ(engine_.Stats().tokens_replayed(), 0u);
  engine_.Stop(StopMode::kFinish);
  engine_.options.idle_tokens_max = 100;  // too few for the second turn
  engine_.Start();
  EXPECT_EQ(talk("y"), expected);
  const v1::StatsReply stats = engine_.Stats();
  EXPECT_EQ(stats.sessions_running(), 1u);
  EXPECT_GT(stats.tokens_replayed(), 0u);
}

TEST_F(EngineTest, AFullDiskIsToldToWhoWaitsAndComputingGoesOnWhenThereIsRoom) {
  const std::vector<uint32_t> ids = RandomIds(3000, 21);
  engine_.Open("b");
  engine_.Append("b", ids);
  const Answer expected = engine_.Generate("b", RandomIds(20, 22), 6);
  engine_.marks = {.soft_bytes = kGiB * kGiB, .hard_bytes = 1};  // no page can be written
  engine_.Restart(StopMode::kFinish);
  EXPECT_EQ(engine_.engine().Health().state(), "store_full");
  const Answer append = engine_.Append("a", ids);
  ASSERT_TRUE(append.last().has_appended()) << append.code();
  EXPECT_GT(append.last().appended().memory().pending_tokens(), 0u);
  const Answer refused = engine_.Generate("a", RandomIds(20, 22), 6);
  EXPECT_EQ(refused.reason(), "store_full");
  EXPECT_GT(refused.last().failed().error().retry_after_ms(), 0u);
  EXPECT_EQ(engine_.Open("a").last().opened().head().turn(), 1u);
  EXPECT_EQ(engine_.Open("c").reason(), "store_full");
  engine_.marks = {.soft_bytes = kGiB * kGiB, .hard_bytes = kGiB * kGiB};  // nor a turn
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(engine_.engine().Health().state(), "store_full");
  EXPECT_EQ(engine_.Append("a", {11}).reason(), "store_full");
  engine_.marks = support::NoMarks();
  engine_.Restart(StopMode::kAtOnce);
  EXPECT_EQ(engine_.engine().Health().state(), "ready");
  EXPECT_EQ(engine_.Generate("a", RandomIds(20, 22), 6).tokens(), expected.tokens());
}

TEST_F(EngineTest, ASessionThatIsNotServedAnyMoreCanBeDeletedAndMadeAgain) {
  engine_.Append("a", RandomIds(600, 23));
  engine_.Stop(StopMode::kFinish);
  std::filesystem::remove(engine_.folder() + "/watermark");
  engine_.Start();
  EXPECT_EQ(engine_.engine().Health().state(), "regressed");
  EXPECT_EQ(engine_.engine().Health().sessions_refused(), 1u);
  EXPECT_EQ(engine_.Stats().sessions_refused(), 1u);
  v1::Request list;
  list.mutable_list();
  EXPECT_EQ(engine_.Ask(list).last().list().sessions(0).refused(), "regressed");
  EXPECT_EQ(engine_.Append("a", {11}).code(), "corruption");
  v1::Request request;
  request.mutable_delete_()->set_session("a");
  EXPECT_EQ(engine_.Ask(request).last().deleted().turns(), 1u);
  EXPECT_EQ(engine_.Append("a", {11}).code(), "not_found");
  EXPECT_EQ(engine_.engine().Health().sessions_refused(), 0u);
  EXPECT_TRUE(engine_.Open("a").last().opened().created());
  EXPECT_FALSE(engine_.Append("a", {11}).failed());
  EXPECT_EQ(engine_.Ask(list).last().list().sessions(0).refused(), "");
}

TEST_F(EngineTest, ATurnLongerThanAnAnswerMayBeIsShownUpToThere) {
  ASSERT_FALSE(engine_.Append("a", RandomIds(700'000, 24), /*wait=*/false).failed());
  ASSERT_FALSE(engine_.Append("a", RandomIds(10, 25), /*wait=*/false).failed());
  v1::Request request;
  request.mutable_transcript()->set_session("a");
  request.mutable_transcript()->set_first_turn(1);
  const Answer first = engine_.Ask(request);
  ASSERT_TRUE(first.last().has_transcript()) << first.code();
  ASSERT_EQ(first.last().transcript().turns_size(), 1);
  EXPECT_TRUE(first.last().transcript().more());
  const std::string& text = first.last().transcript().turns(0).parts(0).text();
  EXPECT_GT(text.size(), size_t{500'000});
  EXPECT_LT(text.size(), size_t{600'000});
  EXPECT_TRUE(text.ends_with(" bytes more]")) << text.substr(text.size() - 40);
  request.mutable_transcript()->set_first_turn(2);
  EXPECT_EQ(engine_.Ask(request).last().transcript().turns(0).turn(), 2u);
}

// Who opens a session that another is writing has computed nothing.
TEST_F(EngineTest, AnOpeningReportsNothingOfAWriteInFlight) {
  Asked writing = engine_.SubmitHeld(support::GenerateOf("a", RandomIds(300, 3), 20));
  ASSERT_TRUE(writing.WaitForTokens(1));
  const v1::MemoryReport memory = engine_.Open("a").last().opened().memory();
  EXPECT_EQ(memory.fresh_tokens(), 0u);
  EXPECT_GE(memory.restored_tokens(), 300u) << "held, whoever computed it";
  EXPECT_FALSE(writing.Wait().failed());
}

}  // namespace
}  // namespace mneme::engine
