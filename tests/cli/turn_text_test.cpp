// Turns as the log holds them, template marks and all, against who said what.
#include "cli/turn_text.h"

#include <gtest/gtest.h>

namespace mneme::cli {
namespace {

void AddPart(v1::TranscriptTurn& turn, bool generated, const std::string& text) {
  turn.add_parts()->set_generated(generated);
  turn.mutable_parts()->rbegin()->set_text(text);
}

TEST(TurnTextTest, TakesTheChatTemplatesMarksAway) {
  v1::TranscriptTurn turn;
  AddPart(turn, false,
          "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nwhere is it?<|im_end|>\n"
          "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  AddPart(turn, true, "under the stone<|im_end|>");
  const auto lines = TurnLines(turn);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "system: Be brief.");
  EXPECT_EQ(lines[1], "user: where is it?");
  EXPECT_EQ(lines[2], "assistant: under the stone");
}

TEST(TurnTextTest, SaysWhereInTheTurnItStands) {
  v1::TranscriptTurn turn;
  AddPart(turn, false, "<|im_start|>user\n where is it?<|im_end|>\n");
  AddPart(turn, true, "under the stone<|im_end|>");
  for (const Spoken& spoken : SpokenIn(turn)) {
    EXPECT_EQ(turn.parts(spoken.part).text().substr(spoken.offset, spoken.text.size()),
              spoken.text);
  }
}

TEST(TurnTextTest, TrimsBothEnds) {
  EXPECT_EQ(Trimmed(" \t\r\n a b\n"), "a b");
  EXPECT_EQ(Trimmed("a"), "a");
  EXPECT_EQ(Trimmed(" \n\t\r"), "");
  EXPECT_EQ(Trimmed(""), "");
}

TEST(TurnTextTest, LeavesTextWithoutMarksAsItIs) {
  v1::TranscriptTurn turn;
  AddPart(turn, false, "once upon a time");
  AddPart(turn, true, " there was");
  EXPECT_EQ(TurnLines(turn),
            (std::vector<std::string>{"user: once upon a time", "assistant: there was"}));
}

TEST(TurnTextTest, SaysWhatMemoryWasMadeOf) {
  v1::MemoryReport memory;
  memory.set_restored_tokens(30112);
  memory.set_replayed_tokens(34);
  memory.set_fresh_tokens(5);
  memory.set_tier("disk");
  memory.set_restore_ms(12.3);
  EXPECT_EQ(MemoryText(memory), "restored 30,112 from disk in 12 ms, replayed 34, fresh 5");
  memory.set_pending_tokens(7);
  memory.set_tier("host");
  EXPECT_EQ(MemoryText(memory),
            "restored 30,112 from host in 12 ms, replayed 34, fresh 5, pending 7");
}

TEST(TurnTextTest, LeavesOutWhatWasInMemoryAnyway) {
  v1::MemoryReport memory;
  memory.set_restored_tokens(30112);
  memory.set_tier("host");
  EXPECT_EQ(MemoryText(memory), "nothing to compute");
  memory.set_tier("disk");
  memory.set_pages_from_disk(3);
  EXPECT_EQ(MemoryText(memory), "3 pages from disk");
  memory.set_pages_from_disk(0);
  memory.set_pending_tokens(1);
  EXPECT_EQ(MemoryText(memory), "pending 1");
  memory.set_fresh_tokens(85);
  EXPECT_EQ(MemoryText(memory), "fresh 85, pending 1");
}

TEST(TurnTextTest, SaysInWordsThatMemoryWasMissing) {
  v1::MemoryReport memory;
  memory.set_replayed_tokens(256);
  memory.set_miss_reason("node eb8a kind 2 layer 0 head 0: not stored");
  EXPECT_EQ(MemoryText(memory).find("replayed 256; a part of the kept memory was missing"), 0u);
  EXPECT_EQ(MemoryText(memory).find("eb8a"), std::string::npos);
}

TEST(TurnTextTest, NamesTheTiersThatHoldSomething) {
  v1::TierBytes bytes;
  EXPECT_EQ(TierText(bytes), "no bytes yet");
  bytes.set_host_bytes(2048);
  bytes.set_disk_bytes(3 << 20);
  EXPECT_EQ(TierText(bytes), "host 2.0 KiB, disk 3.0 MiB");
}

TEST(TurnTextTest, CountersSayOfWhomAndSinceWhen) {
  v1::StatsReply stats;
  stats.set_session("harbour");
  stats.set_reader("hla");
  stats.set_state("idle");
  stats.set_turns(3);
  EXPECT_EQ(StatsLines(stats), (std::vector<std::string>{
                                   "session               harbour",
                                   "reader                hla",
                                   "last used             never",
                                   "state                 idle",
                                   "turns                 3",
                                   "memory                no bytes yet",
                                   "of this session, since the server started: nothing yet",
                               }));
  stats.clear_session();
  stats.set_sessions(5);
  stats.set_sessions_running(1);
  stats.set_tokens_computed(1234);
  EXPECT_EQ(StatsLines(stats), (std::vector<std::string>{
                                   "server                ",
                                   "sessions stored       5",
                                   "sessions in memory    1",
                                   "turns                 3",
                                   "memory                no bytes yet",
                                   "since the server started:",
                                   "  tokens computed     1,234",
                               }));
}

TEST(TurnTextTest, ExplainsOrSaysWhyNot) {
  v1::Explanation explanation;
  explanation.set_none_because("a native reader folds its history");
  EXPECT_EQ(ExplanationLines(explanation).at(0),
            "nothing to explain: a native reader folds its history");
  explanation.clear_none_because();
  v1::TokenExplanation& token = *explanation.add_tokens();
  token.set_position(1234);
  token.set_text("blue\n");
  v1::Contribution& part = *token.add_contributions();
  part.set_first_position(256);
  part.set_tokens(256);
  part.set_share(0.5);
  part.set_tier("host");
  explanation.add_tokens()->set_text("sky");
  const auto lines = ExplanationLines(explanation);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0],
            "turn 0, token by token: how much of what it read came from which tokens, and where "
            "those lay");
  EXPECT_EQ(lines[3], "   0.50  tokens 256 to 511, host");
  EXPECT_EQ(lines[5], "  nothing before the open chunk");
}

}  // namespace
}  // namespace mneme::cli
