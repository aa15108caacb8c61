// Turns, counters and explanations as lines for people. Everything in them is printable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/mneme/v1/event.pb.h"

namespace mneme::cli {

// `text` without spaces, tabs and line breaks at its ends.
std::string_view Trimmed(std::string_view text);

// Who said what, without the chat template's marks.
struct Spoken {
  std::string role;
  std::string text;
  int part = 0;       // of the turn, that it stands in
  size_t offset = 0;  // of its first byte in that part's text
};
std::vector<Spoken> SpokenIn(const v1::TranscriptTurn& turn);

// `role: text`, one or more lines for each that spoke.
std::vector<std::string> TurnLines(const v1::TranscriptTurn& turn);

// What is stored, then what was counted since the server started, and of whom.
std::vector<std::string> StatsLines(const v1::StatsReply& stats);
// A line that says what the columns are, then the chunks that each token read.
std::vector<std::string> ExplanationLines(const v1::Explanation& explanation);

// restored 30,112 from disk in 12 ms, replayed 34, fresh 52; what is 0 or was in memory anyway is
// left out.
std::string MemoryText(const v1::MemoryReport& memory);
// host 1.2 GiB, disk 3.4 GiB
std::string TierText(const v1::TierBytes& bytes);
// What a reader without a router does differently; empty for the others.
std::string ReaderNote(const std::string& reader);

}  // namespace mneme::cli
