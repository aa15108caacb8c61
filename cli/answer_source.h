// What an answer was read from: of the chunks that its tokens read, and of the tokens right before
// it, the sentence that was told and shares the longest run of words with it. Only who told it
// counts: what the model itself said before is not looked at.
//
// Errors:   those of the client
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "proto/mneme/v1/event.pb.h"

namespace mneme::cli {

inline constexpr size_t kSourceChunksMax = 16;  // chunks of an explanation that are looked into
// Tokens before the answer that are looked into too: they hold the open chunk, which no explanation
// lists.
inline constexpr uint64_t kRecentTokens = 256;

struct AnswerSource {
  uint64_t first_position = 0;  // of the chunk
  uint64_t tokens = 0;
  std::string tier;      // "host", "disk", or "recent" for the tokens before the answer
  std::string sentence;  // empty where none was found
  bool found = false;    // else the chunk is the one that was read most
};

// Nothing where no sentence was found and the answer read no closed chunk. Asks the server for the
// turns that the chunks lie in, found by halving, so a long session costs little more than a short
// one.
Result<std::optional<AnswerSource>> FindSource(client::Client& client, const std::string& session,
                                               const v1::Explanation& explanation);

// "tokens 256 to 511 (disk): The key is under the stone.", or that no sentence shares its words.
// Text of the chat template is never shown.
std::string SourceText(const AnswerSource& source);

// The sentences of `text`: lines, cut after . ! and ? where a space follows.
std::vector<std::string_view> SentencesIn(std::string_view text);

// Bytes of the longest run of words that stands in both, case and what lies between words aside.
// 0 where the run says little: it has no number, and less than half of the answer and 12 bytes.
size_t SharedBytes(std::string_view answer, std::string_view sentence);

}  // namespace mneme::cli
